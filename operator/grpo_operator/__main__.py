"""`python -m grpo_operator`: in a pod, or outside a cluster with a kubeconfig."""

import asyncio
import logging
import os
import sys

from .clients.connection import ConfigurationError
from .clients.kube import ApiError
from .controller.app import LeaseLostError, NotReadyError, run
from .logs import configure
from .settings import Settings


def main() -> int:
    """Run one replica.

    Its exit code is 0 only after a signal to stop, 2 when the configuration is invalid, and 1 when
    another start may succeed.
    """
    try:
        settings = Settings.from_environment()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    configure(settings.log_format, settings.log_level)
    try:
        asyncio.run(run(settings))
    except LeaseLostError:
        logging.error("Lost the Lease")
        logging.shutdown()
        # Another replica acts soon: no thread that waits for a response may delay this exit.
        os._exit(1)
    except ConfigurationError as error:
        logging.error("%s", error)
        return 2
    except (NotReadyError, ApiError) as error:
        logging.error("%s", error)
        return 1
    return 0


sys.exit(main())
