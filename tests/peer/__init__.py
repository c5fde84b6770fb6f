"""NeMo Gym's servers, unmodified in containers, held to what it recorded of them (`make test-peer`).

catalogue.py   every server in turn: the command
server.py      one server: up, rewards, rows, down
setup.py       the config with their agents and ours in front of it
recorded.py    tasks and recorded rollouts of a server's data folder
deviations.py  what is judged otherwise today, and why
replay.py      a recorded rollout, judged again by a server that is up
slice.py       the five servers of every test run (tests/docker/nemo_gym)
page.py        docs/compatibility.md

NeMo Gym and gymctl side by side, on the same rows (`make test-side-by-side`):

side_by_side.py   the command: both programs, and what differs
project.py        the configuration and the rows of both
model.py          the model endpoint of both
worlds.py         the two programs
differences.py    two files, field by field
known.py          what may differ, and why
"""
