//! Files of the state directory: for their owner only, whatever the umask and the directory allow.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use libc::{O_NOFOLLOW, O_NONBLOCK};
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;

use crate::failure::Failure;

/// The generation of the content of the SSD.
const GENERATION_FILE: &str = "generation";
const MODE: u32 = 0o600;

/// Opens an empty file to write; one that is there is emptied, and its mode set. A link is not followed, nothing waited for.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(MODE)
        .custom_flags(O_NOFOLLOW | O_NONBLOCK)
        .open(path)?;
    file.set_permissions(Permissions::from_mode(MODE))?;
    Ok(file)
}

/// Replaces a file of ours, which root alone can read; durable when this returns.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// Refuses a place that others could put something else into, or lead elsewhere: they can write to a directory on the way there,
/// each link on it included. One with the sticky bit, such as /tmp, lets nobody replace what is not his; but what is yet to be made
/// there (`is_made`) others could make before.
pub(crate) fn check_own_place(path: &Path, is_made: bool) -> Result<(), Failure> {
    // As many links as the kernel follows.
    const LINKS_MAX: usize = 40;
    let given = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut left = names_from_the_last(&given);
    let mut dir = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = left.pop() {
        if name == ".." {
            dir.pop();
            continue;
        }
        let entry = dir.join(name);
        // What is missing is named by who needs it.
        let Ok(found) = fs::symlink_metadata(&dir) else {
            return Ok(());
        };
        let next = fs::symlink_metadata(&entry);
        let is_kept = found.mode() & libc::S_ISVTX != 0
            && !(is_made && left.is_empty())
            && next.as_ref().is_ok_and(is_owned);
        if !is_owned(&found) || !is_kept && is_shared(&found) {
            return Err(Failure::new(
                format!("{}: others can write to {}", path.display(), dir.display()),
                format!(
                    "chown root: {0}; chmod go-w {0}; or choose a directory to which root alone can write",
                    dir.display()
                ),
            ));
        }
        let Ok(next) = next else { return Ok(()) };
        if !next.is_symlink() {
            dir = entry;
            continue;
        }
        links += 1;
        let Ok(target) = fs::read_link(&entry) else {
            return Ok(());
        };
        if links > LINKS_MAX {
            return Ok(());
        }
        if target.is_absolute() {
            dir = PathBuf::from("/");
        }
        left.extend(names_from_the_last(&target));
    }
    Ok(())
}

/// The names that a path leads by, the last one first.
fn names_from_the_last(path: &Path) -> Vec<OsString> {
    let names = path.components().rev();
    names
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        })
        .collect()
}

fn is_owned(found: &Metadata) -> bool {
    [0, geteuid().as_raw()].contains(&found.uid())
}

/// Whether others than its owner can write to it. The group of root has no other members.
fn is_shared(found: &Metadata) -> bool {
    let others = if found.gid() == 0 { 0o002 } else { 0o022 };
    found.mode() & others != 0
}

/// Where the generation of the content of the SSD is kept.
pub(crate) fn generation_path(state: &Path) -> PathBuf {
    state.join(GENERATION_FILE)
}

/// The state directory is this process's alone, for as long as what is returned exists.
pub(crate) fn lock_state(state: &Path) -> Result<Flock<File>, Failure> {
    let path = state.join("lock");
    let shown = path.display().to_string();
    let hint = "'state' is a directory that exists, for one bathyd alone";
    let file = create(&path).map_err(|error| Failure::new(format!("{shown}: {error}"), hint))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|(_, error)| Failure::new(format!("{shown}: another bathyd uses it ({error})"), hint))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::session::Session;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o777
    }

    #[test]
    fn what_is_kept_of_a_session_and_its_lock_are_for_their_owner_only() {
        let dir = tempfile();
        for name in ["session.json", "session.new", "lock"] {
            fs::write(dir.join(name), "{}").expect("written");
            fs::set_permissions(dir.join(name), Permissions::from_mode(0o666)).expect("changed");
        }
        let _lock = lock_state(&dir).expect("free");
        let mut session = Session::begin(&dir).expect("written");
        assert_eq!(
            (mode(&dir.join("lock")), mode(&dir.join("session.json"))),
            (MODE, MODE)
        );
        session.end().expect("written");
        assert_eq!(mode(&dir.join("session.json")), MODE);
        fs::remove_dir_all(dir).expect("removed");
    }

    #[test]
    fn a_place_that_others_can_write_to_is_refused() {
        let dir = fs::canonicalize(tempfile()).expect("there");
        let (outer, inner) = (dir.join("outer"), dir.join("outer/inner"));
        fs::create_dir_all(&inner).expect("made");
        symlink(&inner, dir.join("link")).expect("made");
        let set = |dir: &Path, mode: u32| {
            fs::set_permissions(dir, Permissions::from_mode(mode)).expect("changed");
        };
        let refused = |path: &Path, is_made| {
            check_own_place(path, is_made)
                .err()
                .map(|failure| failure.message)
        };
        for (of_outer, of_inner, made, there) in [
            (0o755, 0o755, None, None),
            (0o755, 0o777, Some(&inner), Some(&inner)),
            // What is there stays, and others could make what is not.
            (0o755, 0o1777, Some(&inner), None),
            (0o1777, 0o755, None, None),
            (0o777, 0o755, Some(&outer), Some(&outer)),
        ] {
            set(&dir, 0o755);
            set(&outer, of_outer);
            set(&inner, of_inner);
            fs::write(inner.join("file"), "").expect("written");
            for below in [inner.clone(), dir.join("link")] {
                let file = below.join("file");
                let expected = |named: Option<&PathBuf>| {
                    named.map(|named| format!("{}: others can write to {}", file.display(), named.display()))
                };
                // By a link the directory is named as it is given first.
                let found = [refused(&file, true), refused(&file, false)];
                if below == inner {
                    assert_eq!(
                        found,
                        [expected(made), expected(there)],
                        "{of_outer:o} {of_inner:o}"
                    );
                } else {
                    assert_eq!(
                        found.map(|found| found.is_some()),
                        [made.is_some(), there.is_some()]
                    );
                }
            }
        }
        if geteuid().is_root() {
            set(&outer, 0o755);
            std::os::unix::fs::chown(&outer, Some(65534), None).expect("changed");
            assert!(refused(&inner.join("file"), false).is_some_and(|said| said.ends_with("/outer")));
        }
        fs::remove_dir_all(dir).expect("removed");
    }

    #[test]
    fn a_link_that_leads_through_a_link_in_a_shared_directory_is_refused() {
        let dir = fs::canonicalize(tempfile()).expect("there");
        let (shared, own) = (dir.join("shared"), dir.join("own"));
        for (place, mode) in [(&dir, 0o755), (&own, 0o755), (&shared, 0o777)] {
            fs::create_dir_all(place).expect("made");
            fs::set_permissions(place, Permissions::from_mode(mode)).expect("changed");
        }
        fs::write(own.join("file"), "").expect("written");
        symlink(&own, shared.join("hop")).expect("made");
        symlink("shared/hop", dir.join("through")).expect("made");
        symlink("own/../own", dir.join("beside")).expect("made");
        let refused =
            |name: &str| [true, false].map(|is_made| check_own_place(&dir.join(name), is_made).is_err());
        let found = ["through/file", "beside/file"].map(refused);
        fs::remove_dir_all(&dir).expect("removed");
        // Who can write to `shared` can lead the first one elsewhere.
        assert_eq!(found, [[true, true], [false, false]]);
    }

    #[test]
    fn a_link_is_not_followed() {
        let dir = tempfile();
        fs::write(dir.join("foreign"), "kept").expect("written");
        for name in ["lock", "session.new"] {
            symlink("foreign", dir.join(name)).expect("made");
        }
        assert!(lock_state(&dir).is_err());
        assert!(Session::begin(&dir).is_err());
        assert_eq!(fs::read(dir.join("foreign")).expect("there"), b"kept");
        fs::remove_dir_all(dir).expect("removed");
    }

    fn tempfile() -> std::path::PathBuf {
        let name = format!(
            "bathyd-private-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        );
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).expect("made");
        dir
    }
}
