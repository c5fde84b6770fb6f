"""Files and flags -> one frozen `Config` (CONTRACT 1). OmegaConf and Hydra are met here and nowhere else.

load.py          the steps in order; start reading here
model.py         what comes out
problems.py      the collector of everything that is wrong
ports.py         host ports, given away when a project starts
reading/         files and what they include, names, overrides        -> layers
tree/            layers merged, with who wrote what; references followed
shaping/         directives, another agent, old names
server_classes/  what a server's config class knows, without importing it
checks/          what the resolved document must be, part by part
telling/         explain, check, diff, schema; the line of an error
"""

from gymctl.config.model import Config, Dataset, GlobalSettings, Origin, Reference, ServerBlock

__all__ = ["Config", "Dataset", "GlobalSettings", "Origin", "Reference", "ServerBlock"]
