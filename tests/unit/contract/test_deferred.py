"""Results of deferred calls on the wire."""

from __future__ import annotations

from gymctl.contract.deferred import Result, Results


def test_results_survive_any_way_of_cutting_them() -> None:
    sent = [
        Result(1, "a", 200, ((b"content-type", b"application/json"),), b'{"x":1}\n'),
        Result(2, "b", 500, ((b"x", b"\xff"),), b""),
        Result(3, "c", 200, (), b"\n" * 30),
    ]
    wire = b"".join(result.line() + result.body + b"\n" for result in sent)
    for size in (1, 2, 7, 64, len(wire)):
        results = Results()
        pieces = [wire[start : start + size] for start in range(0, len(wire), size)]
        assert [result for piece in pieces for result in results.feed(piece)] == sent
