"""What servers need beside their packages, told from the text of their folders and configs; nothing is run.

catalogue.py     every server and benchmark over the search roots
folder.py        one server folder
settings.py      blocks of a config: other models, sandbox providers, values that are left open
code.py          the entrypoint and what it imports from beside it
requirements.py  requirements.txt and pyproject.toml
need.py          what comes out
"""
