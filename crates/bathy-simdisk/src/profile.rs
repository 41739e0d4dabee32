//! The disks that can be simulated, with the sources of their figures.
//!
//! Where no source states a figure, the comment says that it is assumed.

use serde_json::{Value, json};

use crate::model::flash::{Flash, FlashFigures};
use crate::model::geometry::GeometryFigures;
use crate::model::hdd::{Hdd, HddFigures};
use crate::model::seek::SeekFigures;
use crate::model::zero::Zero;
use crate::model::{Device, Settings};

/// A model with its figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A hard disk.
    Hdd(HddFigures),
    /// Flash behind SATA or `NVMe`.
    Flash(FlashFigures),
    /// No service times at all.
    Zero,
}

/// A disk that can be simulated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Profile {
    /// How it is named on the command line.
    pub name: &'static str,
    /// What it is, for people.
    pub title: &'static str,
    /// Its figures.
    pub kind: Kind,
    /// A reply that comes later than the model says by more than this is counted as late: about a twelfth of a
    /// revolution, or the latency of a flash read.
    pub late_ns: u64,
}

impl Profile {
    /// A device of this profile.
    pub fn device(&self, settings: &Settings) -> Box<dyn Device> {
        match self.kind {
            Kind::Hdd(figures) => Box::new(Hdd::new(figures, settings)),
            Kind::Flash(figures) => Box::new(Flash::new(figures, settings)),
            Kind::Zero => Box::new(Zero::default()),
        }
    }

    /// The figures from which expectations can be computed without the model.
    pub fn figures(&self) -> Value {
        let kind = match self.kind {
            Kind::Hdd(it) => json!({
                "kind": "hdd",
                "revolution_ns": it.geometry.revolution_ns,
                "track_switch_ns": it.geometry.track_switch_ns,
                "outer_bytes_per_s": it.geometry.outer_bytes_per_s,
                "inner_bytes_per_s": it.geometry.inner_bytes_per_s,
                "zones": it.geometry.zones,
                "seek_track_ms": it.seek.track_ms,
                "seek_average_ms": it.seek.average_ms,
                "seek_full_stroke_ms": it.seek.full_stroke_ms,
                "write_settle_ns": it.write_settle_ns,
                "command_overhead_ns": it.command_overhead_ns,
                "queue_depth": it.queue_depth,
                "write_cache": it.write_cache,
                "write_cache_bytes": it.write_cache_bytes,
            }),
            Kind::Flash(it) => json!({
                "kind": "flash",
                "dies": it.channels * it.dies_per_channel,
                "read_ns": it.read_ns,
                "program_ns": it.program_ns,
                "interface_bytes_per_s": it.interface_bytes_per_s,
                "power_loss_protection": it.power_loss_protection,
                "endurance_bytes": it.endurance_bytes,
            }),
            Kind::Zero => json!({"kind": "zero"}),
        };
        let mut figures = json!({"name": self.name, "title": self.title, "late_ns": self.late_ns});
        if let (Some(all), Value::Object(own)) = (figures.as_object_mut(), kind) {
            all.extend(own);
        }
        figures
    }
}

/// The profile of that name.
pub fn profile(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}

const LATE_HDD_NS: u64 = 700_000;
const LATE_FLASH_NS: u64 = 100_000;
const RPM_7200_NS: u64 = 8_333_333;
const RPM_10K_NS: u64 = 6_000_000;

/// A SATA drive's rate of 6 Gbit/s after 8b/10b coding.
const SATA_BYTES_PER_S: f64 = 600e6;

/// How the arm chooses: see [`crate::model::hdd`]. The weight lets 100 ms of waiting count as 3 ms of access time.
const AGE_WEIGHT: f64 = 0.03;

/// 4 TB, 7,200 rpm, SATA: after the HGST Ultrastar 7K4000.
///
/// Specification (version 1.8, 2016): average seek 8.2 ms for reads and writes; data sheet: 64 MB buffer, sustained
/// transfer 171 MB/s at most. Assumed: track to track 0.5 ms and full stroke 16 ms (the IBM Deskstar 60GXP
/// specification, also 7,200 rpm and 8.5 ms on average, states 14.7 ms typical and 17.7 ms at most), a track switch of
/// 0.9 ms (the same specification: 1.4 ms head switch in 2000), half of the outer rate at the inner edge, 0.5 ms of
/// write settling, 16 segments.
const HDD_7200_4T: Profile = Profile {
    name: "hdd-7200-4t",
    title: "4 TB 7,200 rpm SATA hard disk (HGST Ultrastar 7K4000)",
    kind: Kind::Hdd(HddFigures {
        geometry: GeometryFigures {
            revolution_ns: RPM_7200_NS,
            track_switch_ns: 900_000,
            outer_bytes_per_s: 171e6,
            inner_bytes_per_s: 86e6,
            zones: 24,
        },
        seek: SeekFigures {
            track_ms: 0.5,
            average_ms: 8.2,
            full_stroke_ms: 16.0,
        },
        write_settle_ns: 500_000,
        command_overhead_ns: 20_000,
        interface_bytes_per_s: SATA_BYTES_PER_S,
        queue_depth: 32,
        age_weight: AGE_WEIGHT,
        read_segments: 16,
        read_segment_bytes: 3 << 20,
        write_cache_bytes: 48 << 20,
        write_cache: true,
    }),
    late_ns: LATE_HDD_NS,
};

/// 16 TB, 7,200 rpm, SATA: after the Seagate Exos X16 (ST16000NM001G).
///
/// Data sheet: 261 MB/s sustained at the outer edge, 256 MB buffer, 4.16 ms average latency, 170 IOPS of 4 KiB random
/// reads at depth 16. It states no seek times. Assumed: average 8.0 ms, track to track 0.4 ms and full stroke 15.5 ms
/// (specifications of 7,200 rpm drives of that size state 8.0 to 8.5 ms on average), a track switch of 0.8 ms, half of
/// the outer rate at the inner edge, 0.5 ms of write settling, 32 segments.
const HDD_7200_16T: Profile = Profile {
    name: "hdd-7200-16t",
    title: "16 TB 7,200 rpm SATA hard disk (Seagate Exos X16)",
    kind: Kind::Hdd(HddFigures {
        geometry: GeometryFigures {
            revolution_ns: RPM_7200_NS,
            track_switch_ns: 800_000,
            outer_bytes_per_s: 261e6,
            inner_bytes_per_s: 130e6,
            zones: 30,
        },
        seek: SeekFigures {
            track_ms: 0.4,
            average_ms: 8.0,
            full_stroke_ms: 15.5,
        },
        write_settle_ns: 500_000,
        command_overhead_ns: 20_000,
        interface_bytes_per_s: SATA_BYTES_PER_S,
        queue_depth: 32,
        age_weight: AGE_WEIGHT,
        read_segments: 32,
        read_segment_bytes: 6 << 20,
        write_cache_bytes: 128 << 20,
        write_cache: true,
    }),
    late_ns: LATE_HDD_NS,
};

/// 10,000 rpm, SAS: seeks of the Seagate Savvio 10K, rates of the WD Xe.
///
/// Savvio SAS product manual (rev. D, ST973401SS): average seek 4.0 ms read and 4.4 ms write, single track 0.20 and
/// 0.60 ms, full stroke 8.1 and 8.6 ms, internal rates from 506 to 753 Mbit/s, so the inner edge has 0.67 of the outer
/// rate. WD Xe (900 GB, review by `StorageReview`): 204 MB/s at most, 32 MB buffer. Assumed: a track switch of 0.5 ms, 16
/// segments. Tagged command queuing is deeper than NCQ: 64. Such drives are delivered with the write cache off.
const HDD_10K_SAS: Profile = Profile {
    name: "hdd-10k-sas",
    title: "10,000 rpm SAS hard disk (Seagate Savvio 10K, WD Xe)",
    kind: Kind::Hdd(HddFigures {
        geometry: GeometryFigures {
            revolution_ns: RPM_10K_NS,
            track_switch_ns: 500_000,
            outer_bytes_per_s: 204e6,
            inner_bytes_per_s: 137e6,
            zones: 20,
        },
        seek: SeekFigures {
            track_ms: 0.2,
            average_ms: 4.0,
            full_stroke_ms: 8.1,
        },
        write_settle_ns: 400_000,
        command_overhead_ns: 20_000,
        interface_bytes_per_s: SATA_BYTES_PER_S,
        queue_depth: 64,
        age_weight: AGE_WEIGHT,
        read_segments: 16,
        read_segment_bytes: 2 << 20,
        write_cache_bytes: 16 << 20,
        write_cache: false,
    }),
    late_ns: LATE_HDD_NS,
};

/// 960 GB SATA data-centre SSD: after the Intel SSD D3-S4510.
///
/// Data sheet: 560 and 510 MB/s sequential, 95,000 and 36,000 IOPS of 4 KiB random I/O (writes sustained), power-loss
/// protection, 3.4 PB of writes. Assumed: the inner structure (8 channels of 4 dies) and the times of TLC flash, chosen
/// so that these figures result.
const SSD_SATA: Profile = Profile {
    name: "ssd-sata",
    title: "960 GB SATA data-centre SSD with power-loss protection (Intel D3-S4510)",
    kind: Kind::Flash(FlashFigures {
        channels: 8,
        dies_per_channel: 4,
        page_bytes: 16 << 10,
        program_bytes: 96 << 10,
        read_ns: 60_000,
        program_ns: 1_100_000,
        erase_ns: 5_000_000,
        block_bytes: 24 << 20,
        suspend_ns: 50_000,
        channel_bytes_per_s: 400e6,
        interface_bytes_per_s: 560e6,
        interface_command_ns: 3_200,
        read_overhead_ns: 20_000,
        write_overhead_ns: 25_000,
        buffer_bytes: 4 << 20,
        power_loss_protection: true,
        burst_bytes: 4 << 30,
        burst_recovery_bytes_per_s: 50e6,
        sustained_sequential_factor: 1.0,
        sustained_random_factor: 19.0,
        read_spread: 0.1,
        tail_probability: 0.001,
        tail_ns: 1_000_000,
        endurance_bytes: 3.4e15,
    }),
    late_ns: LATE_FLASH_NS,
};

/// 2 TB `NVMe` data-centre SSD: after the Intel SSD DC P4510.
///
/// Data sheet: 3,200 and 2,000 MB/s sequential, 637,000 and 81,500 IOPS of 4 KiB random I/O (writes sustained), typical
/// latency 77 µs reads and 18 µs writes, power-loss protection, 2.61 PB of writes. Assumed: the inner structure (12
/// channels of 5 dies) and the times of TLC flash, chosen so that these figures result.
const NVME_DC: Profile = Profile {
    name: "nvme-dc",
    title: "2 TB NVMe data-centre SSD with power-loss protection (Intel DC P4510)",
    kind: Kind::Flash(FlashFigures {
        channels: 12,
        dies_per_channel: 5,
        page_bytes: 16 << 10,
        program_bytes: 96 << 10,
        read_ns: 60_000,
        program_ns: 2_900_000,
        erase_ns: 5_000_000,
        block_bytes: 24 << 20,
        suspend_ns: 50_000,
        channel_bytes_per_s: 800e6,
        interface_bytes_per_s: 3.2e9,
        interface_command_ns: 250,
        read_overhead_ns: 10_000,
        write_overhead_ns: 15_000,
        buffer_bytes: 16 << 20,
        power_loss_protection: true,
        burst_bytes: 16 << 30,
        burst_recovery_bytes_per_s: 100e6,
        sustained_sequential_factor: 1.0,
        sustained_random_factor: 6.0,
        read_spread: 0.1,
        tail_probability: 0.001,
        tail_ns: 1_000_000,
        endurance_bytes: 2.61e15,
    }),
    late_ns: LATE_FLASH_NS,
};

/// 1 TB consumer `NVMe` SSD: after the Samsung 970 EVO.
///
/// Data sheet: 3,400 and 2,500 MB/s sequential, 15,000 and 50,000 IOPS at depth 1, 42 GB of SLC buffer
/// (`TurboWrite`), 1,200 MB/s after it, no power-loss protection, 600 TB of writes. Assumed: the inner structure (8
/// channels of 4 dies), the times of TLC flash, and that random writes after the buffer have a write amplification of 4.
const NVME_CONSUMER: Profile = Profile {
    name: "nvme-consumer",
    title: "1 TB consumer NVMe SSD without power-loss protection (Samsung 970 EVO)",
    kind: Kind::Flash(FlashFigures {
        channels: 8,
        dies_per_channel: 4,
        page_bytes: 16 << 10,
        program_bytes: 64 << 10,
        read_ns: 48_000,
        program_ns: 830_000,
        erase_ns: 5_000_000,
        block_bytes: 16 << 20,
        suspend_ns: 50_000,
        channel_bytes_per_s: 800e6,
        interface_bytes_per_s: 3.4e9,
        interface_command_ns: 250,
        read_overhead_ns: 10_000,
        write_overhead_ns: 15_000,
        buffer_bytes: 32 << 20,
        power_loss_protection: false,
        burst_bytes: 42_000_000_000,
        burst_recovery_bytes_per_s: 300e6,
        sustained_sequential_factor: 2.08,
        sustained_random_factor: 8.3,
        read_spread: 0.12,
        tail_probability: 0.002,
        tail_ns: 1_500_000,
        endurance_bytes: 600e12,
    }),
    late_ns: LATE_FLASH_NS,
};

const ZERO: Profile = Profile {
    name: "zero",
    title: "no service times: what the simulation itself costs",
    kind: Kind::Zero,
    late_ns: LATE_FLASH_NS,
};

/// All profiles.
pub const PROFILES: &[Profile] = &[
    HDD_7200_4T,
    HDD_7200_16T,
    HDD_10K_SAS,
    SSD_SATA,
    NVME_DC,
    NVME_CONSUMER,
    ZERO,
];
