"""Files and flags -> one frozen `Config` (CONTRACT 1). OmegaConf and Hydra are met here and nowhere else.

Each line may import the lines below it, which a test enforces; start reading at `load.py`.

telling/         explain, check, diff, schema; the line of an error
load.py          the steps in order
sources.py       what a command names, read
ports.py         host ports, given away when a project starts
shaping/         directives, another agent, old names
needs/           what servers need beside their packages: GPU, sandbox, judge, network
checks/          what the resolved document must be, part by part
server_classes/  what a server's config class knows, without importing it
reading/         files and what they include, names, overrides  -> layers
tree/            layers merged, with who wrote what; references followed
problems.py      the collector of everything that is wrong
project.py       the project's name
names.py         suggestions for names that were not found
families.py      whose SDK a server folder is written for
model.py         what comes out
"""

from gymctl.config.model import Config, Dataset, GlobalSettings, Origin, Reference, ServerBlock

__all__ = ["Config", "Dataset", "GlobalSettings", "Origin", "Reference", "ServerBlock"]
