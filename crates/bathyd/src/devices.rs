//! The devices of an OSD: `BlueStore` has links to them in its directory, and they are shown there as files.
//!
//! Whoever can write to the directory can make such a link, and bathyd acts as root. So a device is opened because the
//! configuration names it, by path and identity. A link has only to lead there; one that leads elsewhere is not followed:
//! it is shown as the link that it is, and the status and the log say why.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FileType, OFlags, SeekFrom, Stat, fstat, readlinkat, seek};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::config::{Configuration, Configured, NAMES, Source};
use crate::device_identity::{DeviceIdentity, Likeness, diskseq_of, number_text};
use crate::encryption;
use crate::identity::FileIdentity;
use crate::tree;

/// A block device or a regular file outside of the source. While it is open, its number is not given to another one.
pub(crate) struct Device {
    pub(crate) name: &'static str,
    path: PathBuf,
    /// Open as a path.
    pub(crate) node: OwnedFd,
    stat: Stat,
    held: File,
    identity: DeviceIdentity,
}

impl Device {
    /// Opens what `path` leads to, for reading, if it is a block device or a regular file.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] if it is neither; all others may pass.
    fn open(name: &'static str, path: &Path) -> io::Result<Self> {
        let node = tree::open_trusted(path)?;
        let stat = fstat(&node)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if !matches!(kind, FileType::BlockDevice | FileType::RegularFile) {
            let problem = "neither a block device nor a regular file";
            return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
        }
        let held = tree::open_again(&node, OFlags::RDONLY | OFlags::NONBLOCK)?;
        Ok(Self {
            name,
            path: path.to_owned(),
            identity: DeviceIdentity::of(&held)?,
            node,
            stat,
            held,
        })
    }

    /// Opens it, if it is the one that was configured.
    fn open_configured(name: &'static str, path: &Path, configured: &Configured) -> Result<Self, String> {
        let shown = path.display();
        let device = Self::open(name, path).map_err(|error| format!("{name}: {shown}: {error}"))?;
        let why = match configured.identity.compare(&device.identity) {
            Likeness::Same | Likeness::SameName => return Ok(device),
            Likeness::Other(why) => why,
            Likeness::Unknown => "nothing shows that it is still the same device".to_owned(),
        };
        Err(format!(
            "{name}: {shown} is not the device of the configuration: {why}"
        ))
    }

    /// A block device, and not a file that stands in for one.
    pub(crate) fn is_block(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::BlockDevice
    }

    /// As it was when it was opened.
    pub(crate) fn identity(&self) -> &DeviceIdentity {
        &self.identity
    }

    pub(crate) fn number(&self) -> u64 {
        self.stat.st_rdev
    }

    /// What encrypts it, itself or below.
    pub(crate) fn encryption(&self) -> Option<String> {
        if self.is_block() {
            return encryption::of_device(self.number());
        }
        encryption::of_file(&self.held).ok()?
    }

    /// Now: a device grows.
    pub(crate) fn size_bytes(&self) -> rustix::io::Result<u64> {
        seek(&self.held, SeekFrom::End(0))
    }

    /// Opens it once more. The device that its number is given to when it was removed is not opened in its place.
    pub(crate) fn reopen(&self, flags: OFlags) -> rustix::io::Result<File> {
        let file = tree::open_again(&self.node, flags)?;
        self.check().map(|()| file)
    }

    /// That its number still is that of the device.
    ///
    /// # Errors
    /// If it was removed.
    pub(crate) fn check(&self) -> rustix::io::Result<()> {
        let is_it = !self.is_block() || diskseq_of(self.number()) == self.identity.diskseq;
        is_it.then_some(()).ok_or(rustix::io::Errno::NODEV)
    }

    /// By what it is known in the cache of a source whose file system is on `device`.
    pub(crate) fn file_identity(&self, device: u64) -> rustix::io::Result<FileIdentity> {
        let identity = FileIdentity::of(&self.node)?;
        if self.is_block() || self.stat.st_dev == device {
            return Ok(identity);
        }
        Ok(identity.linked_as(self.name))
    }

    /// Whether a link with this target leads to it. Nothing is looked at that others than root could have made.
    fn is_at(&self, target: &Path) -> bool {
        if target == self.path {
            return true;
        }
        let other = (self.is_block() && target.starts_with("/dev")).then(|| tree::open_trusted(target));
        other
            .and_then(|node| fstat(node.ok()?).ok())
            .is_some_and(|other| {
                FileType::from_raw_mode(other.st_mode) == FileType::BlockDevice
                    && other.st_rdev == self.stat.st_rdev
            })
    }
}

/// The directory of a source, to ask for its links.
pub(crate) struct Place {
    /// Of a [`tree::private_mount`].
    root: OwnedFd,
    /// The directory below the mount, by which links that stay within it can be told from others.
    below: File,
    dir: PathBuf,
    source: String,
}

impl Place {
    /// `root` is the directory of `source` in a private mount, `below` the same in its own.
    pub(crate) fn new(root: &OwnedFd, below: &File, source: &Source) -> io::Result<Self> {
        Ok(Self {
            root: root.try_clone()?,
            below: below.try_clone()?,
            dir: source.dir.clone(),
            source: source.name(),
        })
    }

    /// What to do about a link that is not followed.
    pub(crate) fn hint(&self) -> String {
        let name = &self.source;
        format!(
            "if it is right: bathy cache source stop {name}, then: bathy cache source set {name} --devices"
        )
    }

    /// Where a link leads, if it leads out of the directory: an absolute path.
    fn way_out(&self, link: &OwnedFd) -> io::Result<Option<PathBuf>> {
        let target = match readlinkat(link, "", Vec::new()) {
            Ok(target) => target,
            // It is no link.
            Err(Errno::INVAL | Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        if !tree::leads_out(&self.below, &self.dir, target) {
            return Ok(None);
        }
        tree::resolved(&self.below, target).map(Some)
    }

    /// The links of an OSD that lead out of the directory, with what they lead to. Of those that cannot be looked at: why.
    pub(crate) fn links(&self) -> Vec<Result<Link, String>> {
        let each = NAMES.into_iter().filter_map(|name| {
            let link = self.link(name);
            link.map_err(|error| format!("{name}: {error}")).transpose()
        });
        each.collect()
    }

    fn link(&self, name: &'static str) -> io::Result<Option<Link>> {
        let link = self.target_and_owner(name)?;
        Ok(link.map(|(target, _)| Link::open(name, target)))
    }

    /// Where a link leads, if it leads out of the directory, and whose it is. What it leads to is not touched.
    fn target_and_owner(&self, name: &str) -> io::Result<Option<(PathBuf, u32)>> {
        let link = match tree::open_path(&self.root, OsStr::new(name)) {
            Err(Errno::NOENT) => return Ok(None),
            link => link?,
        };
        let target = self.way_out(&link)?;
        let owner = fstat(&link)?.st_uid;
        Ok(target.map(|target| (target, owner)))
    }

    /// What a configuration without a word of devices is taken to mean: the links that only those made who could open what
    /// these lead to by themselves.
    pub(crate) fn adopt(&self) -> Adopted {
        let mut adopted = Adopted::default();
        for name in NAMES {
            let (target, owner) = match self.target_and_owner(name) {
                Ok(Some(link)) => link,
                Ok(None) => continue,
                Err(error) => {
                    adopted.unseen.push(format!("{name}: {error}"));
                    continue;
                }
            };
            // Before it is touched: it may be on a file system of who made the link, which never answers.
            if let Some(problem) = self.distrust(owner) {
                let target = target.display();
                adopted
                    .left_out
                    .push(format!("{name} leads to {target}: {problem}"));
                continue;
            }
            let link = Link::open(name, target);
            if let Some(objection) = self.objection(&link) {
                adopted.left_out.push(objection);
            } else if let Some(configured) = link.configured() {
                adopted.devices.insert(name.to_owned(), configured);
            } else {
                adopted.unseen.extend(link.problem());
            }
        }
        adopted
    }

    /// Why a link of this owner is not followed, whatever it leads to.
    fn distrust(&self, link_owner: u32) -> Option<&'static str> {
        const OTHERS_WRITE: u32 = 0o022;
        // In such a directory, as the tmpfs of an OSD is, nobody takes the place of another one's link.
        const STICKY: u32 = 0o1000;
        let Ok(root) = fstat(&self.root) else {
            return Some("the directory cannot be asked");
        };
        if root.st_mode & OTHERS_WRITE != 0 && root.st_mode & STICKY == 0 {
            return Some("others than its owner can write to the directory");
        }
        (link_owner != 0 && link_owner != root.st_uid).then_some("the link is not the directory's owner's")
    }

    /// Why what a link leads to is not served for its sake. What cannot be looked at meets none.
    fn objection(&self, link: &Link) -> Option<String> {
        let device = match &link.found {
            Ok(device) => device,
            Err(error) => {
                return link
                    .problem()
                    .filter(|_| error.kind() == io::ErrorKind::Unsupported);
            }
        };
        let owner = fstat(&self.root).map_or(u32::MAX, |root| root.st_uid);
        (owner != 0 && device.stat.st_uid != owner).then(|| {
            format!(
                "{} leads to {}: the directory's owner does not own what it leads to",
                link.name,
                link.target.display()
            )
        })
    }
}

/// What the links of a directory are taken to mean.
#[derive(Default)]
pub(crate) struct Adopted {
    pub(crate) devices: Configuration,
    /// Links that are not followed, and why.
    pub(crate) left_out: Vec<String>,
    /// Links that cannot be looked at now: what they lead to may be there later.
    pub(crate) unseen: Vec<String>,
}

/// A link in the directory of an OSD that leads out of it.
pub(crate) struct Link {
    pub(crate) name: &'static str,
    target: PathBuf,
    pub(crate) found: io::Result<Device>,
}

impl Link {
    fn open(name: &'static str, target: PathBuf) -> Self {
        Self {
            name,
            found: Device::open(name, &target),
            target,
        }
    }

    /// How a configuration names what it leads to.
    pub(crate) fn configured(&self) -> Option<Configured> {
        let device = self.found.as_ref().ok()?;
        Some(Configured {
            path: self.target.clone(),
            identity: device.identity.clone(),
        })
    }

    /// Why it leads to nothing that can be served.
    fn problem(&self) -> Option<String> {
        let error = self.found.as_ref().err()?;
        Some(format!("{}: {}: {error}", self.name, self.target.display()))
    }

    pub(crate) fn report(&self) -> Value {
        let configured = self.configured();
        json!({
            "name": self.name,
            "target": self.target.to_string_lossy(),
            "is_block_device": self.found.as_ref().is_ok_and(Device::is_block),
            "is": configured.as_ref().map(|it| it.identity.to_string()),
            "configured": configured,
            "problem": self.problem(),
        })
    }
}

/// The devices of a source that is served.
pub(crate) struct Devices {
    place: Place,
    known: Vec<Arc<Device>>,
    /// Of configured devices that are not there, or are others now.
    failures: BTreeMap<&'static str, String>,
    /// Of links that lead elsewhere.
    refused: Mutex<BTreeMap<&'static str, String>>,
    /// Other names of devices that links had last.
    aliases: Mutex<BTreeMap<&'static str, PathBuf>>,
}

impl Devices {
    /// Opens what the configuration names. What is not there, or not the same, is named and not served.
    pub(crate) fn open(place: Place, configuration: &Configuration) -> Self {
        let mut devices = Self {
            place,
            known: Vec::new(),
            failures: BTreeMap::new(),
            refused: Mutex::default(),
            aliases: Mutex::default(),
        };
        for name in NAMES {
            let Some(configured) = configuration.get(name) else {
                continue;
            };
            match devices.find(name, configured) {
                Ok(device) => devices.known.push(Arc::new(device)),
                Err(failure) => {
                    devices.failures.insert(name, failure);
                }
            }
        }
        // The log says at once what will not be served.
        for name in NAMES {
            let _noted = devices.behind_name(OsStr::new(name));
        }
        devices
    }

    /// The configured device: at its path, or where the link leads now if that is in /dev, where a disk may have another name
    /// after a restart.
    fn find(&self, name: &'static str, configured: &Configured) -> Result<Device, String> {
        Device::open_configured(name, &configured.path, configured).or_else(|failure| {
            let link = tree::open_path(&self.place.root, OsStr::new(name)).ok();
            let target = link.and_then(|link| self.place.way_out(&link).ok()?);
            let target = target.filter(|target| target.starts_with("/dev"));
            let other = target.and_then(|target| Device::open_configured(name, &target, configured).ok());
            other.filter(Device::is_block).ok_or(failure)
        })
    }

    /// Those that are there.
    pub(crate) fn known(&self) -> &[Arc<Device>] {
        &self.known
    }

    /// The device to which the entry `name` of the root leads; see [`Devices::behind`].
    pub(crate) fn behind_name(&self, name: &OsStr) -> Option<Arc<Device>> {
        name_of(name)?;
        let link = tree::open_path(&self.place.root, name).ok()?;
        self.behind(name, &link)
    }

    /// The device to which `link`, the entry `name` of the root, leads. If it leads to anything else outside of the source,
    /// that is noted.
    pub(crate) fn behind(&self, name: &OsStr, link: &OwnedFd) -> Option<Arc<Device>> {
        let name = name_of(name)?;
        // What cannot be read is shown as the link that it is.
        let target = self.place.way_out(link).ok().flatten();
        let device = self.known.iter().find(|device| device.name == name);
        let device = device.filter(|device| target.as_ref().is_some_and(|target| device.is_at(target)));
        if let (Some(device), Some(target)) = (device, &target) {
            self.note_alias(device, target);
        }
        let problem = target.filter(|_| device.is_none()).map(|target| {
            let shown = target.display();
            self.failures.get(name).cloned().unwrap_or_else(|| {
                format!("{name} leads to {shown}, which is not a device of the configuration")
            })
        });
        self.note(name, problem);
        device.cloned()
    }

    /// Says once for each of them by which other name a device is reached.
    fn note_alias(&self, device: &Device, target: &Path) {
        let mut aliases = self.aliases.lock().unwrap_or_else(PoisonError::into_inner);
        let is_said = target == device.path || aliases.get(device.name).is_some_and(|said| said == target);
        if is_said {
            return;
        }
        eprintln!(
            "bathyd: {}: {} leads to {}, another name of {} of the configuration ({}): it is served",
            self.place.dir.display(),
            device.name,
            target.display(),
            device.path.display(),
            number_text(device.number()),
        );
        aliases.insert(device.name, target.to_owned());
    }

    fn note(&self, name: &'static str, problem: Option<String>) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(problem) = problem else {
            refused.remove(name);
            return;
        };
        if refused.get(name) != Some(&problem) {
            eprintln!(
                "bathyd: {}: NOT SERVED: {problem}\nhint: {}",
                self.place.dir.display(),
                self.hint()
            );
            refused.insert(name, problem);
        }
    }

    /// What to do about that.
    pub(crate) fn hint(&self) -> String {
        self.place.hint()
    }

    /// Why links are not followed, if there are such.
    pub(crate) fn problem(&self) -> Option<String> {
        let problems: Vec<_> = NAMES
            .into_iter()
            .filter_map(|name| self.problem_of(name))
            .collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }

    fn problem_of(&self, name: &str) -> Option<String> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.get(name).or_else(|| self.failures.get(name)).cloned()
    }

    /// What is known of each device, and why a link is not followed.
    pub(crate) fn report(&self) -> Vec<Value> {
        let each = NAMES.into_iter().filter_map(|name| {
            let device = self.known.iter().find(|device| device.name == name);
            let problem = self.problem_of(name);
            (device.is_some() || problem.is_some()).then(|| {
                json!({
                    "name": name,
                    "path": device.map(|device| device.path.to_string_lossy()),
                    "is": device.map(|device| device.identity.to_string()),
                    "size_bytes": device.and_then(|device| device.size_bytes().ok()),
                    "problem": problem,
                })
            })
        });
        each.collect()
    }
}

fn name_of(name: &OsStr) -> Option<&'static str> {
    NAMES.into_iter().find(|known| name == *known)
}
