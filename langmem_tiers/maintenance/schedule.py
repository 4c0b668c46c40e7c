"""Schedule of background maintenance, from a cron expression."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from langmem_tiers.errors import InvalidConfigError

if TYPE_CHECKING:
    from langmem_tiers.config import MaintenanceConfig

_HINT = "five fields (minute, hour, day, month, weekday), for example '0 3 * * *' for 03:00 each day"


class Schedule:
    """Times of a cron expression.

    Args:
        config: Configuration with the cron expression and its time zone.

    Raises:
        InvalidConfigError: The cron expression is invalid or never due, or the time zone is unknown.
    """

    def __init__(self, config: MaintenanceConfig) -> None:
        self.cron_line = config.schedule
        try:
            self._zone = ZoneInfo(config.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise InvalidConfigError(
                f"unknown time_zone {config.time_zone!r}: use a name such as 'UTC' or 'Europe/Berlin'"
            ) from None
        # Validates the expression now, not at the first run. Any date works.
        self.find_next(datetime(2024, 1, 1, tzinfo=UTC))

    def find_next(self, moment: datetime) -> datetime:
        """Return the first time after a moment, in UTC."""
        from cronsim import CronSim, CronSimError  # noqa: PLC0415 - only needed if maintenance is used

        try:
            found: datetime = next(CronSim(self.cron_line, moment.astimezone(self._zone)))
        except CronSimError as error:
            raise InvalidConfigError(
                f"schedule {self.cron_line!r} is not a cron expression ({error}): use {_HINT}"
            ) from None
        except StopIteration:
            raise InvalidConfigError(f"schedule {self.cron_line!r} is never due: use {_HINT}") from None
        return found.astimezone(UTC)
