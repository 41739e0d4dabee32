"""Device profiles: what makes the lab's devices as slow as a class of real device.

Either a simulated disk (`disk`), which seeks, rotates and queues as the drive of that name, or a throttle. A throttle
limits rates only. It knows neither seeks nor that a disk reads sequentially for free: the kernel counts every request
alike, so a 64 KiB sequential read costs one of 232 requests per second like a random one. `THROTTLE_SENTENCE` says so
beside every result. The limits of a class with a simulated disk are for machines that cannot serve one.

The profiles can be replaced with a YAML file (`--profile FILE`) that has one entry for each device class:

    hdd:
      disk: hdd-7200-4t
      read_iops: 232
      write_iops: 232
      read_bytes_per_s: 200M
      write_bytes_per_s: 200M
      rotational: true
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from bathyscope import files
from bathyscope.errors import UsageError
from bathyscope.simdisk import disk_profiles
from bathyscope.spec import DeviceLimit, Model
from bathyscope.units import format_bandwidth, format_rate, parse_bytes

THROTTLE_SENTENCE = (
    "Devices are emulated: loop devices whose request rate and bandwidth the kernel limits; they have no seeks, "
    "so sequential requests cost as much as random ones."
)
SIMULATED_SENTENCE = "Disks are simulated: their times are those of a model of a drive, without wear and defects."


class DeviceProfile(Model):
    """What a device class means: a simulated disk or limits, and whether Ceph sees a rotating disk."""

    disk: str | None = Field(default=None, description="drive to simulate; none: a throttle")
    write_cache: bool | None = Field(default=None, description="of the simulated drive; none: as it is sold")
    read_iops: float = Field(gt=0)
    write_iops: float = Field(gt=0)
    read_bytes_per_s: float = Field(gt=0)
    write_bytes_per_s: float = Field(gt=0)
    rotational: bool = False
    description: str = ""

    @field_validator("disk")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        profiles = dict(disk_profiles())
        if value is not None and value not in profiles:
            raise ValueError(f"'{value}' is not a drive that can be simulated ({', '.join(profiles)})")
        return value

    @field_validator("read_bytes_per_s", "write_bytes_per_s", mode="before")
    @classmethod
    def _bandwidth(cls, value: Any) -> Any:
        return float(parse_bytes(value)) if isinstance(value, str) else value

    @property
    def limit(self) -> DeviceLimit:
        """The throttle as the measuring parts see it."""
        return DeviceLimit(
            read_iops=self.read_iops,
            write_iops=self.write_iops,
            read_bytes_per_s=self.read_bytes_per_s,
            write_bytes_per_s=self.write_bytes_per_s,
        )

    @property
    def drive(self) -> str | None:
        """What is simulated, in words."""
        if self.disk is None:
            return None
        cache = "" if self.write_cache is None else f", write cache {'on' if self.write_cache else 'off'}"
        return dict(disk_profiles())[self.disk] + cache

    def sentence(self) -> str:
        """The limits in one line, for help and for caveats."""
        return (
            f"{format_rate(self.read_iops)} / {format_rate(self.write_iops)} IOPS read / write, "
            f"{format_bandwidth(self.read_bytes_per_s)} / {format_bandwidth(self.write_bytes_per_s)}"
        )


# CERN's OSD study measured 232 IOPS (HDD) and 85.1 kIOPS (SSD) for raw 4 KiB random writes on the devices whose
# Ceph performance it then analyses. Bandwidths: outer tracks of a 7,200 rpm SATA disk, and the ceiling of SATA 6 Gb/s.
BUILT_IN: dict[str, DeviceProfile] = {
    "hdd": DeviceProfile(
        disk="hdd-7200-4t",
        # As Ceph's hardware recommendations advise; with it, a test of seconds measures the drive's memory.
        write_cache=False,
        read_iops=232,
        write_iops=232,
        read_bytes_per_s=200e6,
        write_bytes_per_s=200e6,
        rotational=True,
        description="7,200 rpm SATA disk",
    ),
    "ssd": DeviceProfile(
        read_iops=85_100,
        write_iops=85_100,
        read_bytes_per_s=520e6,
        write_bytes_per_s=520e6,
        description="SATA data-centre SSD; fast enough that the OSD's CPU is the limit",
    ),
    "nvme": DeviceProfile(
        read_iops=500_000,
        write_iops=200_000,
        read_bytes_per_s=3e9,
        write_bytes_per_s=2e9,
        description="NVMe data-centre SSD; as a rule faster than the disk beneath the lab",
    ),
}


def load_profiles(path: Path | None) -> dict[str, DeviceProfile]:
    """Return the profiles by device class: the built-in ones, with those of the YAML file at `path` over them.

    Raises UsageError with the key at fault when the file cannot be read or is invalid.
    """
    if path is None:
        return dict(BUILT_IN)
    try:
        document = YAML(typ="safe").load(files.read_bounded(path).decode())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the profile file {path} cannot be read: {error}") from error
    except YAMLError as error:
        raise UsageError(f"the profile file {path} is not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(document, dict):
        raise UsageError(f"the profile file {path} must map device classes to limits")
    profiles = dict(BUILT_IN)
    for name, fields in document.items():
        try:
            profiles[str(name)] = DeviceProfile.model_validate(fields)
        except (ValidationError, UsageError) as error:
            detail = error.message if isinstance(error, UsageError) else _first_error(error)
            raise UsageError(
                f"profile '{name}' in {path} is invalid: {detail}", hint=f"a profile has {', '.join(_KEYS)}"
            ) from error
    return profiles


_KEYS = [name for name in DeviceProfile.model_fields if name != "description"]


def _first_error(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc']) or 'value'}: {first['msg']}"
