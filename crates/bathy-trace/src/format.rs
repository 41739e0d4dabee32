//! The formats by name.

use std::fmt;
use std::str::FromStr;

use crate::error::TraceError;

macro_rules! formats {
    ($($(#[$doc:meta])* $variant:ident, $name:literal;)+) => {
        /// A trace format that can be read.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Format {
            $($(#[$doc])* $variant,)+
        }

        impl Format {
            /// Every format.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name by which users ask for it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

formats! {
    /// Ceph `dump_historic_ops` and its relatives, JSON.
    OpHistory, "op-history";
    /// Ceph OSD log at `debug_osd` 15: `log_op_stats` lines.
    OsdLog, "osd-log";
    /// Ceph OSD log at `debug_ms` 1: `osd_op` and `osd_op_reply` messages.
    OsdMessages, "osd-messages";
    /// Text of `blkparse`.
    Blkparse, "blkparse";
    /// Binary of `blktrace`, per CPU or merged.
    Blktrace, "blktrace";
    /// fio iolog version 2.
    FioV2, "fio-v2";
    /// fio iolog version 3.
    FioV3, "fio-v3";
    /// Virtual SCSI commands, version 1.
    Vscsi1, "vscsi1";
    /// Virtual SCSI commands, version 2.
    Vscsi2, "vscsi2";
    /// `oracleGeneral` of `libCacheSim`.
    OracleGeneral, "oracle-general";
    /// MSR Cambridge CSV (SNIA IOTTA).
    Msr, "msr";
    /// Storage Performance Council text.
    Spc, "spc";
    /// Alibaba Cloud block traces CSV.
    Alibaba, "alibaba";
    /// Tencent Cloud block storage CSV.
    Tencent, "tencent";
    /// ARC `.lis`.
    Arc, "arc";
    /// One block number a line, as the LIRS authors use.
    Lirs, "lirs";
    /// Little-endian u32 block numbers (the `CloudPhysics` traces of Caffeine).
    RawU32, "raw-u32";
    /// CSV with a header that names the columns.
    Csv, "csv";
}

impl Format {
    /// True when events have times. They count from the Unix epoch in the Ceph formats, `msr`, `alibaba` and `tencent`,
    /// as the writer chose in `csv`, and from the start of the trace or of the machine in the others.
    pub fn has_time(self) -> bool {
        !matches!(self, Self::Arc | Self::Lirs | Self::RawU32)
    }

    /// All names, for messages.
    pub(crate) fn known() -> String {
        let names: Vec<_> = Self::ALL.iter().map(|format| format.name()).collect();
        names.join(", ")
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = TraceError;

    fn from_str(name: &str) -> Result<Self, TraceError> {
        Self::ALL
            .iter()
            .copied()
            .find(|format| format.name() == name)
            .ok_or_else(|| TraceError::FormatName {
                name: name.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_its_format() {
        for &format in Format::ALL {
            assert_eq!(format.name().parse::<Format>().unwrap(), format);
        }
        let message = "vscsi".parse::<Format>().unwrap_err().to_string();
        assert!(message.contains("vscsi1, vscsi2"), "{message}");
    }
}
