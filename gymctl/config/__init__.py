"""Files and flags -> one frozen `Config` (CONTRACT 1). OmegaConf and Hydra are met here and nowhere else."""

from gymctl.config.model import Config, Dataset, GlobalSettings, Origin, Reference, ServerBlock

__all__ = ["Config", "Dataset", "GlobalSettings", "Origin", "Reference", "ServerBlock"]
