"""All images of one project: the base, which is the head's, those of our own servers, those of NeMo Gym's."""

from __future__ import annotations

from dataclasses import dataclass

from gymctl.config.model import Config
from gymctl.images.nemo_gym import plan_nemo_gym
from gymctl.images.plan import BaseImage, ImagePlan, plan_base, plan_servers


@dataclass(frozen=True, slots=True)
class Pythons:
    """The Python images that a project's images stand on."""

    ours: BaseImage
    nemo_gym: BaseImage | None = None
    """None: no server of the project is NeMo Gym's own."""


def plan_project(config: Config, pythons: Pythons) -> list[ImagePlan]:
    """The base first; every base before what stands on it. Reads files, writes nothing."""
    base = plan_base(pythons.ours)
    foreign = plan_nemo_gym(config, pythons.nemo_gym) if pythons.nemo_gym is not None else []
    return [base, *plan_servers(config, base.tag), *foreign]


def needs_nemo_gym(config: Config) -> bool:
    return any(block.family == "nemo_gym" for block in config.servers.values())


def by_server(plans: list[ImagePlan]) -> dict[str, str]:
    """Server id -> tag."""
    return {name: plan.tag for plan in plans for name in plan.servers}
