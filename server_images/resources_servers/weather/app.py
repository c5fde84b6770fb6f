"""Weather: one tool, one verifier. The example of the tutorial."""

from __future__ import annotations

import re

from pydantic import BaseModel

from gymctl.servers import ResourcesServer, VerifyRequest, VerifyResponse, tool


class Forecast(BaseModel):
    city: str
    sky: str
    temperature_celsius: int


FORECASTS = [
    Forecast(city="Oslo", sky="snow", temperature_celsius=-4),
    Forecast(city="Cairo", sky="sunny", temperature_celsius=34),
    Forecast(city="London", sky="rain", temperature_celsius=11),
    Forecast(city="Lima", sky="cloudy", temperature_celsius=19),
    Forecast(city="Nairobi", sky="windy", temperature_celsius=23),
]
BY_CITY = {forecast.city.lower(): forecast for forecast in FORECASTS}


class WeatherTask(VerifyRequest):
    """A row names the city that its question is about."""

    city: str


class WeatherVerdict(VerifyResponse):
    says_sky: bool
    says_temperature: bool


class Weather(ResourcesServer):
    """The answer is right when it states the city's sky and temperature."""

    reverify_mode = "stateless"

    @tool
    async def get_weather(self, city: str) -> Forecast | str:
        """Get today's weather in a city: the sky, and the temperature in degrees Celsius."""
        return BY_CITY.get(city.strip().lower(), f"There is no weather station in {city}.")

    async def verify(self, request: WeatherTask) -> WeatherVerdict:
        truth = BY_CITY.get(request.city.strip().lower())
        if truth is None:
            raise ValueError(f"the row's city, {request.city!r}, has no weather station")
        answer = request.answer.lower()
        numbers = re.findall(r"-?\d+", answer.replace("−", "-"))
        says_sky = truth.sky in answer
        says_temperature = str(truth.temperature_celsius) in numbers
        return WeatherVerdict.of(
            request,
            reward=1.0 if says_sky and says_temperature else 0.0,
            says_sky=says_sky,
            says_temperature=says_temperature,
        )


app = Weather.app()
