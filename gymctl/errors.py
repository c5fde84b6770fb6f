"""Every error a user can see: what is wrong, where, what to do, and the exit code it ends with.

    GymctlError                   exit
    ├── UsageError                  2   flags that do not go together
    ├── ConfigError                 1   a value, with its place
    │   ├── ConfigPathNotFoundError, MalformedConfigPathsError, NoServerInstancesError,
    │   ├── ConfigMissingValuesError, ConfigInterpolationError, ServerRefNotFoundError,
    │   ├── InheritPathNotFoundError, AmbiguousAgentRenameError, AgentCompositionError,
    │   ├── UnsupportedAgentPairingError, UnsupportedModelPairingError, UnsupportedAgentOverrideError,
    │   ├── ConfigErrors (several of them at once),
    │   └── AlmostServerError, AgentWithoutEnvironmentServerError, AmbiguousEnvironmentServerError
    ├── PrerequisiteError           3   engine missing or too old, port taken, no disk, no GPU
    │   └── PrerequisiteErrors (several of them at once)
    ├── EngineError                 4   build, push, start
    ├── ServerError                 5   a server answered with an error we cannot go on from
    ├── RunError                    6   rollouts left undone, coverage under the floor
    ├── GateError                   7   a gate said no: all was done, and the numbers are not good enough
    ├── BudgetError                 8   a cap on time, tokens or cost was reached; the run can go on
    └── IntegrityError              9   a digest, lock, passport or bundle is not what it says
    Interrupted                   130   SIGINT; 143 for SIGTERM, 129 for SIGHUP

Anything else is a bug: exit code 70, traceback in a file. Printed once, in `cli/main.py`:

    error: `num_repeats` must be at least 1, got 0
      --> eval.yaml:7:3
       7 |   num_repeats: 0
         |   ^
    hint: ...
"""

from __future__ import annotations

from collections.abc import Sequence

EXIT_BUG = 70


class Place(str):
    """`file:line:column` as text that knows its parts; of an error whose `where` it is, the line is shown."""

    source: str = ""
    line: int | None = None
    column: int | None = None

    @classmethod
    def at(cls, source: str, line: int, column: int, *, text: str | None = None) -> Place:
        """`text`: how it is written, when it says more than the three."""
        place = cls(f"{source}:{line}:{column}" if text is None else text)
        place.source, place.line, place.column = source, line, column
        return place


class GymctlError(Exception):
    """Base of everything a user may see.

    what: one line, no trailing full stop. where: `file:line:column` (a `Place`), a flag, a key or a server.
    hint: the next thing to do. details: further lines (log tails, lists), printed indented.
    """

    exit_code = 1

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        details: Sequence[str] = (),
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint
        self.details = tuple(details)

    def __str__(self) -> str:
        return self.text()

    def text(self, excerpt: Sequence[str] = ()) -> str:
        """All lines of the message; `excerpt` (the line of the file that `where` names) below the arrow."""
        lines = [self.what]
        if self.where:
            lines.append(f"  --> {self.where}")
        lines += excerpt
        lines += [f"  {line}" for line in self.details]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


def first_cause(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Of the errors of tasks that ran together: the one that made the others stop."""
    first = errors.exceptions[0]
    return first_cause(first) if isinstance(first, BaseExceptionGroup) else first


class UsageError(GymctlError):
    """Flags that do not go together, an unknown selector, a missing argument."""

    exit_code = 2


class ConfigError(GymctlError):
    """A configuration that cannot be used. Subclasses carry the names of CONTRACT 1.19."""

    exit_code = 1


class ConfigErrors(ConfigError):
    """Several mistakes of one configuration, each an error of its own with its place."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        super().__init__(f"{len(errors)} problems in the configuration")
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.errors), self.what])


class ConfigPathNotFoundError(ConfigError):
    """A file named in `config_paths` is in none of the search roots."""


class MalformedConfigPathsError(ConfigError):
    """`config_paths` is not a list of strings."""


class NoServerInstancesError(ConfigError):
    """The merged configuration starts nothing."""


class ConfigMissingValuesError(ConfigError):
    """Mandatory values (`???`) are still unset; all of them are listed."""


class ConfigInterpolationError(ConfigError):
    """A `${...}` points at nothing; all of them are listed."""


class ServerRefNotFoundError(ConfigError):
    """A block refers to a server that the configuration does not define."""


class InheritPathNotFoundError(ConfigError):
    """A directive names a block that the configuration does not define."""


class AmbiguousAgentRenameError(ConfigError):
    """An agent was inherited into several new ones while an environment server still names it."""


class AgentCompositionError(ConfigError):
    """A standalone agent cannot take the place of the agents that the configuration brings."""


class UnsupportedAgentPairingError(ConfigError):
    """A resources server does not accept the agent that would be bound to it; all such pairs are listed."""


class UnsupportedModelPairingError(ConfigError):
    """A resources server does not accept the model server of its agent; all such pairs are listed."""


class UnsupportedAgentOverrideError(ConfigError):
    """An override for a composed agent names an agent or a field that is not there."""


class AlmostServerError(ConfigError):
    """A block looks like a server and does not validate as one."""


class AgentWithoutEnvironmentServerError(ConfigError):
    """An agent that no environment server fronts."""


class AmbiguousEnvironmentServerError(ConfigError):
    """An agent that several environment servers front."""


class PrerequisiteError(GymctlError):
    """Something outside gymctl is missing: an engine, a free port, disk space."""

    exit_code = 3


class PrerequisiteErrors(PrerequisiteError):
    """Several things that are missing, each an error of its own with its place."""

    def __init__(self, errors: Sequence[PrerequisiteError]) -> None:
        details = [f"{error.what} ({error.where})" for error in errors]
        super().__init__(f"{len(errors)} things are missing", details=details)
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.errors), self.what])


class EngineError(GymctlError):
    """The container engine (or uv, in the process runtime) failed to build or start something."""

    exit_code = 4


class ServerError(GymctlError):
    """A server died, never became ready, or answered with an error we cannot go on from."""

    exit_code = 5


class RunError(GymctlError):
    """A run that did not end as asked: rollouts left undone, coverage under the floor, output full."""

    exit_code = 6


class GateError(GymctlError):
    """What the user demanded of the numbers (`--gate`) does not hold; they have been printed before."""

    exit_code = 7


class BudgetError(GymctlError):
    """A cap on time, tokens or cost was reached. What is finished is kept, and the run can be resumed."""

    exit_code = 8


class IntegrityError(GymctlError):
    """Something is not what its digest, lock, passport or bundle says, or is not there under that digest."""

    exit_code = 9


class Interrupted(GymctlError):
    """SIGINT (exit 130), SIGTERM (143) or SIGHUP (129); what was started is stopped when it is raised."""

    exit_code = 130

    def __init__(self, what: str = "interrupted", *, signal_number: int = 2, hint: str | None = None) -> None:
        super().__init__(what, hint=hint)
        self.exit_code = 128 + signal_number
