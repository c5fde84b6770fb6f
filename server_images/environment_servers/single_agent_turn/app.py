"""One episode = one turn of one agent with the tools of one resources server, then a verdict."""

from gymctl.servers import SingleTurnConfig, SingleTurnServer


class SingleAgentTurn(SingleTurnServer):
    config: SingleTurnConfig


app = SingleAgentTurn.app()
