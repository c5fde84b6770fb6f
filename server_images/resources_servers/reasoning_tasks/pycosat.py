"""Satisfiability in plain Python, under the name that reasoning-gym imports.

The pycosat package exists only as C source, and server images hold no compiler. Only `itersolve` is used, by
the zebra puzzles, to find out whether a puzzle has one solution; which solution comes first does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Clause = tuple[int, ...]


def itersolve(clauses: Iterable[Sequence[int]]) -> Iterator[list[int]]:
    """All assignments that satisfy every clause, each as a list of signed variables."""
    known = [tuple(dict.fromkeys(clause)) for clause in clauses]
    while True:
        solution = solve(known)
        if solution is None:
            return
        yield solution
        known.append(tuple(-literal for literal in solution))


def solve(clauses: Sequence[Clause]) -> list[int] | None:
    """One satisfying assignment, or None."""
    if any(not clause for clause in clauses):
        return None
    search = _Search(clauses)
    return search.run()


class _Search:
    """Depth first with unit propagation; a clause is looked at when one of two literals turns false."""

    def __init__(self, clauses: Sequence[Clause]) -> None:
        self.variables = sorted({abs(literal) for clause in clauses for literal in clause})
        self.clauses = [list(clause) for clause in clauses]
        self.value: dict[int, bool] = {}
        self.trail: list[int] = []
        self.watchers: dict[int, list[list[int]]] = {}
        for clause in self.clauses:
            for literal in clause[:2]:
                self.watchers.setdefault(literal, []).append(clause)

    def run(self) -> list[int] | None:
        units = [clause[0] for clause in self.clauses if len(clause) == 1]
        if not all(self.assume(literal) for literal in units):
            return None
        decisions: list[tuple[int, int]] = []  # literal, length of the trail before it
        position = 0
        while position < len(self.variables):
            variable = self.variables[position]
            if variable in self.value:
                position += 1
                continue
            decisions.append((variable, len(self.trail)))
            is_consistent = self.assume(variable)
            while not is_consistent:
                # Undo the latest decision that has not been tried both ways, and try its other way.
                while decisions and decisions[-1][0] < 0:
                    self.undo(decisions.pop()[1])
                if not decisions:
                    return None
                literal, length = decisions.pop()
                self.undo(length)
                decisions.append((-literal, length))
                is_consistent = self.assume(-literal)
                position = 0
        return [variable if self.value[variable] else -variable for variable in self.variables]

    def is_true(self, literal: int) -> bool:
        return self.value.get(abs(literal)) is (literal > 0)

    def is_false(self, literal: int) -> bool:
        return self.value.get(abs(literal)) is (literal < 0)

    def undo(self, length: int) -> None:
        while len(self.trail) > length:
            del self.value[abs(self.trail.pop())]

    def assume(self, literal: int) -> bool:
        """Set a literal and all that follows from it. False when that contradicts a clause."""
        queue = [literal]
        while queue:
            literal = queue.pop()
            if self.is_true(literal):
                continue
            if self.is_false(literal):
                return False
            self.value[abs(literal)] = literal > 0
            self.trail.append(literal)
            if not self._propagate(-literal, queue):
                return False
        return True

    def _propagate(self, false_literal: int, queue: list[int]) -> bool:
        """Move the watch of each clause that watched this literal; what cannot move has one literal left."""
        kept: list[list[int]] = []
        watching = self.watchers.get(false_literal, [])
        for index, clause in enumerate(watching):
            if clause[0] == false_literal and len(clause) > 1:
                clause[0], clause[1] = clause[1], clause[0]
            if not self.is_true(clause[0]) and self._rewatch(clause):
                continue
            kept.append(clause)
            if self.is_true(clause[0]):
                continue
            if self.is_false(clause[0]):
                self.watchers[false_literal] = kept + watching[index + 1 :]
                return False
            queue.append(clause[0])
        self.watchers[false_literal] = kept
        return True

    def _rewatch(self, clause: list[int]) -> bool:
        for place in range(2, len(clause)):
            if not self.is_false(clause[place]):
                clause[1], clause[place] = clause[place], clause[1]
                self.watchers.setdefault(clause[1], []).append(clause)
                return True
        return False
