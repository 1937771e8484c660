"""What tests of the batch API begin and end with."""

from api import Api
from broker import Broker, Case


class ApiCase(Case):
    """Tests of a broker with the streams of the class, and a client of it."""

    streams: tuple = ()
    config: dict = {}

    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.broker = Broker(*self.streams)
        self.broker.config |= self.config
        await self.broker.start()
        self.api = Api(self.broker.port)

    async def asyncTearDown(self):
        self.api.close()
        await self.broker.__aexit__()
