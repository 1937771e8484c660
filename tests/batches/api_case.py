"""What tests of the batch API begin and end with."""

import subprocess

from api import Api
from broker import ADAPTER, Broker, Case


class ApiCase(Case):
    """Tests of a broker with the streams of the class, and a client of it."""

    streams: tuple = ()
    config: dict = {}
    #: More of streamcast.toml, by dotted keys.
    settings: dict = {}

    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.broker = Broker(*self.streams, **self.settings)
        self.broker.config |= self.config
        await self.broker.start()
        self.api = Api(self.broker.port)

    async def offline(self, *args) -> None:
        """A command on the root while no broker serves it."""
        self.api.close()
        self.assertEqual(await self.broker.stop(), 0)
        done = subprocess.run([str(ADAPTER.program()), *args, "--root", str(self.broker.root)], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, (args, done.stderr))
        await self.broker.start()

    async def asyncTearDown(self):
        self.api.close()
        await self.broker.__aexit__()
