"""Blackjack against a dealer: the Blackjack-v1 environment of the gymnasium package, told in text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gymctl.servers import EnvConfig, EnvRow, EnvServer


class BlackjackConfig(EnvConfig):
    natural: bool = False
    """A win with an ace and a ten as the first two cards is worth 1.5."""
    sab: bool = False
    """The rules of Sutton and Barto's book; `natural` is then without effect."""


class Blackjack(EnvServer):
    """A row's `seed` decides every card; without one, each episode is dealt anew."""

    config: BlackjackConfig
    actions: ClassVar[Mapping[str, Any]] = {"hit": 1, "stand": 0}

    def make(self, row: EnvRow) -> Any:
        import gymnasium

        rules = {"natural": self.config.natural, "sab": self.config.sab}
        return gymnasium.make("Blackjack-v1", disable_env_checker=True, **rules)

    def observe(self, env: Any, observation: Any) -> str:
        total, dealer, _ = observation
        return (
            f"Your cards: {_cards(env.unwrapped.player)}, together {int(total)}.\n"
            f"The dealer shows {_card(dealer)}.\n"
            "Respond with <action>hit</action> or <action>stand</action>."
        )

    def report(self, env: Any, info: dict[str, Any], *, is_over: bool) -> dict[str, Any]:
        """The table at the end, which the rollout keeps."""
        if not is_over:
            return info
        table = env.unwrapped
        player, dealer = _total(table.player), _total(table.dealer)
        return {
            **info,
            "result": _result(player, dealer),
            "player": _cards(table.player),
            "player_total": player,
            "dealer": _cards(table.dealer),
            "dealer_total": dealer,
        }


def _result(player: int, dealer: int) -> str:
    if player > 21:
        return "bust"
    if dealer > 21 or player > dealer:
        return "win"
    return "draw" if player == dealer else "loss"


def _total(cards: Sequence[Any]) -> int:
    """An ace counts 11 where that does not exceed 21."""
    total = int(sum(cards))
    return total + 10 if 1 in cards and total + 10 <= 21 else total


def _cards(cards: Sequence[Any]) -> str:
    return ", ".join(_card(card) for card in cards)


def _card(card: Any) -> str:
    return "A" if card == 1 else str(int(card))


app = Blackjack.app()
