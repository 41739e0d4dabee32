//! Files of the state directory: for their owner only, whatever the umask and the directory allow.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use libc::{O_NOFOLLOW, O_NONBLOCK};
use nix::fcntl::{Flock, FlockArg};

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
