"""When something is due: a cron line, read by the clock that is handed in."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from langmem_tiers.errors import InvalidConfigError

if TYPE_CHECKING:
    from langmem_tiers.config import MaintenanceConfig

_HINT = "five fields, minute hour day month weekday, such as '0 3 * * *' for 03:00 each day"


class Schedule:
    """The times of a cron line.

    Args:
        config: The line, and the time zone that it is read in.

    Raises:
        InvalidConfigError: It is no cron line, it is never due, or the time zone is not known.
    """

    def __init__(self, config: MaintenanceConfig) -> None:
        self.cron_line = config.schedule
        try:
            self._zone = ZoneInfo(config.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise InvalidConfigError(
                f"unknown time_zone {config.time_zone!r}: use a name such as 'UTC' or 'Europe/Berlin'"
            ) from None
        self.find_next(datetime(2024, 1, 1, tzinfo=UTC))

    def find_next(self, moment: datetime) -> datetime:
        """The first time that is later, in UTC."""
        from cronsim import CronSim, CronSimError  # noqa: PLC0415 - not before something is to be scheduled

        try:
            found: datetime = next(CronSim(self.cron_line, moment.astimezone(self._zone)))
        except CronSimError as error:
            raise InvalidConfigError(
                f"schedule {self.cron_line!r} is no cron line ({error}): use {_HINT}"
            ) from None
        except StopIteration:
            raise InvalidConfigError(f"schedule {self.cron_line!r} is never due: use {_HINT}") from None
        return found.astimezone(UTC)
