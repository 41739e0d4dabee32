//! The command line.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::profile::{PROFILES, Profile, profile};
use crate::units::parse_bytes;

/// What `--help` prints.
pub const HELP: &str = "\
Serve simulated disks as files of a FUSE mount.

usage: bathy-simdisk --mount DIR --control SOCKET --disk SPEC [--disk SPEC ...]

  --mount DIR          an existing directory (absolute path); each disk is a file in it
  --control SOCKET     a Unix socket (absolute path) for counters and faults: JSON, one object a line
  --disk SPEC          name=NAME,profile=PROFILE,size=SIZE[,backing=FILE|memory][,write-cache=on|off][,seed=N]
  --threads N          threads that take requests from the kernel (2)
  --die-with-parent    stop when the process that started this one dies
  --help, --version

It stays in the foreground. SIGTERM and SIGINT unmount. Exit codes: 0 done, 2 error.
";

/// A disk to serve.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskSpec {
    /// Its file's name.
    pub name: String,
    /// What it is like.
    pub profile: &'static Profile,
    /// Its size.
    pub size_bytes: u64,
    /// The file with its data; `None` is memory.
    pub backing: Option<PathBuf>,
    /// Write cache on or off; `None` is the profile's own setting.
    pub write_cache: Option<bool>,
    /// Seed of what is random.
    pub seed: u64,
}

/// What to serve.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Where to mount.
    pub mount: PathBuf,
    /// The control socket.
    pub control: PathBuf,
    /// The disks.
    pub disks: Vec<DiskSpec>,
    /// Threads of the FUSE session.
    pub threads: usize,
    /// Whether to stop with the parent.
    pub die_with_parent: bool,
}

/// What the command line asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Serve disks.
    Serve(Options),
    /// Print the help.
    Help,
    /// Print the version.
    Version,
}

/// A command line that cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageError {
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: String,
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nhint: {}", self.message, self.hint)
    }
}

impl std::error::Error for UsageError {}

fn usage(message: impl Into<String>, hint: impl Into<String>) -> UsageError {
    UsageError {
        message: message.into(),
        hint: hint.into(),
    }
}

/// Parse the arguments after the program's name.
///
/// # Errors
/// Returns an error with a hint if they are not complete or not understood.
pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Command, UsageError> {
    let (mut mount, mut control, mut disks) = (None, None, Vec::new());
    let (mut threads, mut die_with_parent) = (2, false);
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let (name, given) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(value.to_owned())),
            _ => (argument, None),
        };
        let mut value = || {
            given
                .clone()
                .or_else(|| arguments.next())
                .ok_or_else(|| usage(format!("{name} needs a value"), "see --help"))
        };
        match name.as_str() {
            "--mount" => mount = Some(absolute("--mount", &value()?)?),
            "--control" => control = Some(absolute("--control", &value()?)?),
            "--disk" => disks.push(disk(&value()?)?),
            "--threads" => {
                let text = value()?;
                let count = text.parse().ok().filter(|count| (1..=64).contains(count));
                threads = count.ok_or_else(|| {
                    usage(
                        format!("--threads must be from 1 to 64 (got {text})"),
                        "--threads 2",
                    )
                })?;
            }
            "--die-with-parent" => die_with_parent = true,
            "--help" | "-h" => return Ok(Command::Help),
            "--version" => return Ok(Command::Version),
            _ => return Err(usage(format!("'{name}' is not an option"), "see --help")),
        }
    }
    let mount = mount.ok_or_else(|| usage("--mount is missing", "--mount /run/disks"))?;
    let control = control.ok_or_else(|| usage("--control is missing", "--control /run/disks.sock"))?;
    if disks.is_empty() {
        return Err(usage(
            "--disk is missing",
            "--disk name=osd0,profile=hdd-7200-4t,size=100G",
        ));
    }
    for (index, disk) in disks.iter().enumerate() {
        if disks[..index].iter().any(|other| other.name == disk.name) {
            return Err(usage(
                format!("two disks have the name {}", disk.name),
                "give each its own name",
            ));
        }
    }
    Ok(Command::Serve(Options {
        mount,
        control,
        disks,
        threads,
        die_with_parent,
    }))
}

fn absolute(option: &str, text: &str) -> Result<PathBuf, UsageError> {
    if Path::new(text).is_absolute() {
        Ok(PathBuf::from(text))
    } else {
        Err(usage(
            format!("{option} must be an absolute path (got '{text}')"),
            format!("{option} /…/{text}"),
        ))
    }
}

fn disk(spec: &str) -> Result<DiskSpec, UsageError> {
    let mut keys: BTreeMap<&str, &str> = BTreeMap::new();
    for word in spec.split(',') {
        let example = "name=osd0,profile=hdd-7200-4t,size=100G";
        let (key, value) = word
            .split_once('=')
            .ok_or_else(|| usage(format!("--disk: '{word}' is not key=value"), example))?;
        if keys.insert(key.trim(), value.trim()).is_some() {
            return Err(usage(format!("--disk: '{key}' is given twice"), example));
        }
    }
    let mut needed = |key: &str, example: &str| {
        keys.remove(key)
            .ok_or_else(|| usage(format!("--disk: {key} is missing in '{spec}'"), example))
    };
    let name = needed("name", "name=osd0")?;
    let profile_name = needed("profile", "profile=hdd-7200-4t")?;
    let size = needed("size", "size=100G")?;
    if name.is_empty() || name.len() > 255 || name.starts_with('.') || name.contains(['/', '\0']) {
        return Err(usage(
            format!("--disk: '{name}' is not a file name"),
            "letters, digits, '.', '-' and '_'",
        ));
    }
    let profile = profile(profile_name).ok_or_else(|| {
        let names: Vec<&str> = PROFILES.iter().map(|it| it.name).collect();
        usage(
            format!("--disk: there is no profile '{profile_name}'"),
            format!("one of {}", names.join(", ")),
        )
    })?;
    let size_bytes =
        parse_bytes(size).filter(|bytes| (1 << 20..=1 << 50).contains(bytes) && bytes % 4096 == 0);
    let size_bytes = size_bytes.ok_or_else(|| {
        usage(
            format!("--disk: size must be from 1M to 1024T in steps of 4K (got {size})"),
            "size=100G",
        )
    })?;
    let backing = match keys.remove("backing") {
        None | Some("memory") => None,
        Some(path) => Some(absolute("--disk backing", path)?),
    };
    let write_cache = match keys.remove("write-cache") {
        None => None,
        Some("on") => Some(true),
        Some("off") => Some(false),
        Some(other) => {
            return Err(usage(
                format!("--disk: write-cache must be on or off (got {other})"),
                "write-cache=off",
            ));
        }
    };
    let seed = match keys.remove("seed") {
        None => 1,
        Some(text) => text.parse().map_err(|_| {
            usage(
                format!("--disk: seed must be a whole number (got {text})"),
                "seed=1",
            )
        })?,
    };
    if let Some(key) = keys.keys().next() {
        return Err(usage(
            format!("--disk: '{key}' is not known"),
            "name, profile, size, backing, write-cache, seed",
        ));
    }
    Ok(DiskSpec {
        name: name.to_owned(),
        profile,
        size_bytes,
        backing,
        write_cache,
        seed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, UsageError> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_command_line() {
        let line = "--mount /m --control=/c.sock --disk name=a,profile=hdd-7200-4t,size=100G,backing=/d,write-cache=off \
                    --disk name=b,profile=zero,size=1M";
        let Ok(Command::Serve(options)) = parsed(line) else {
            panic!("{:?}", parsed(line));
        };
        assert_eq!(options.disks.len(), 2);
        assert_eq!(options.disks[0].size_bytes, 100 << 30);
        assert_eq!(options.disks[0].write_cache, Some(false));
        assert_eq!(options.disks[1].backing, None);
    }

    #[test]
    fn mistakes_have_hints() {
        let all = "--mount /m --control /c";
        for (line, words) in [
            ("", "--mount is missing"),
            ("--mount m", "absolute"),
            ("--mount", "needs a value"),
            ("--flag", "not an option"),
            (all, "--disk is missing"),
            (&format!("{all} --disk name=a,profile=zero"), "size is missing"),
            (&format!("{all} --disk name=a,profile=x,size=1G"), "no profile"),
            (
                &format!("{all} --disk name=a/b,profile=zero,size=1G"),
                "not a file name",
            ),
            (
                &format!("{all} --disk name=a,profile=zero,size=1"),
                "size must be",
            ),
            (
                &format!("{all} --disk name=a,profile=zero,size=1G,x=1"),
                "not known",
            ),
            (
                &format!("{all} --disk name=a,profile=zero,size=1G,name=b"),
                "twice",
            ),
            (
                &format!("{all} --disk name=a,profile=zero,size=1G,backing=f"),
                "absolute",
            ),
            (
                &format!("{all} --disk name=a,profile=zero,size=1G --disk name=a,profile=zero,size=1G"),
                "two disks",
            ),
            (&format!("{all} --threads 0"), "--threads must be"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(
                error.message.contains(words) && !error.hint.is_empty(),
                "{line}: {error}"
            );
        }
    }
}
