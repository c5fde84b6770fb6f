"""NeMo Gym's servers, unmodified in containers, held to what it recorded of them (`make test-peer`).

catalogue.py   every server in turn: the command
server.py      one server: up, rewards, rows, down
setup.py       the config with their agents and ours in front of it
recorded.py    tasks and recorded rollouts of a server's data folder
replay.py      a recorded rollout, judged again by a server that is up
page.py        docs/compatibility.md
"""
