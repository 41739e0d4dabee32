//! Acting with the rights of a caller.
//!
//! Whether a caller may do something the kernel has decided when a request comes here, with all that it knows of the caller
//! (`default_permissions`). What is decided below are things that depend on who acts: whose a new file is, which blocks and
//! quotas are left for whom, and who may keep set-user-id and set-group-id bits. So a thread takes user and group of the caller
//! for what it does for the caller, and gives up the two capabilities that would decide these things for root: `CAP_FSETID`
//! and `CAP_SYS_RESOURCE`. It keeps the ones that pass permission checks: these are made, and could only be stricter here.
//!
//! A new file must belong to its caller from the first moment: a `chown` afterwards would let others see it as root's, and a
//! crash between the two would leave it so.
//!
//! `setfsuid`, `setfsgid`, `setgroups` and `capset` as they are called here hold for the calling thread alone. With another
//! user than 0 the kernel takes the capabilities of file systems away, and gives them back with user 0.
//!
//! Supplementary groups do not come with a request. The program gives up its own when it starts. Those of callers matter for
//! set-group-id bits alone, which are rare, and are read from `/proc` then. The caller waits for the reply, so its thread is
//! there; a thread that cannot be seen counts as a member of none.

use std::cell::{Cell, RefCell};
use std::fs;

use bathy_fuse::Caller;
use nix::unistd::{setfsgid, setfsuid};
use rustix::fs::{Gid, Mode};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities, set_thread_groups};

/// What passes permission checks.
const PASSES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::MKNOD);

/// The rights with which something is done.
#[derive(Clone, Debug)]
pub(crate) struct Rights {
    caller: Caller,
    groups: Vec<Gid>,
    /// Set-user-id and set-group-id bits stay; root keeps them unless this says otherwise.
    keeps_set_id: bool,
    /// Checks of permissions are passed.
    passes: bool,
    /// What is done depends on the group. Space does not, unless a file system reserves some for a group.
    has_group: bool,
}

impl Rights {
    /// Those of a caller for something that needs no permission, such as a write to what is open. `mode` is that of what is
    /// changed, or of what is made.
    pub(crate) fn of(caller: Caller, mode: Mode) -> Self {
        let has_groups = mode.contains(Mode::SGID) && caller.user != 0;
        Self {
            caller,
            groups: if has_groups {
                groups_of(caller.thread)
            } else {
                Vec::new()
            },
            keeps_set_id: caller.user == 0,
            passes: false,
            has_group: mode.contains(Mode::SGID) && caller.group != 0,
        }
    }

    /// Those of a caller for something that the kernel has permitted.
    pub(crate) fn permitted(caller: Caller, mode: Mode) -> Self {
        Self {
            passes: true,
            has_group: caller.group != 0,
            ..Self::of(caller, mode)
        }
    }

    /// Whether set-user-id and set-group-id bits stay is the kernel's decision.
    pub(crate) fn keeping_set_id(self, keeps_set_id: bool) -> Self {
        Self { keeps_set_id, ..self }
    }

    /// Takes them for as long as what is returned exists.
    pub(crate) fn take(&self) -> Acting {
        let is_root = self.caller.user == 0;
        set_resources(is_root);
        if !self.groups.is_empty() {
            let _refused = set_thread_groups(&self.groups);
        }
        if self.has_group {
            setfsgid(self.caller.group.into());
        }
        if !is_root {
            setfsuid(self.caller.user.into());
        }
        let (mut added, mut removed) = (CapabilitySet::empty(), CapabilitySet::empty());
        if self.passes && !is_root {
            added |= PASSES;
        }
        if self.keeps_set_id != is_root {
            let set = if is_root { &mut removed } else { &mut added };
            *set |= CapabilitySet::FSETID;
        }
        if !(added | removed).is_empty() {
            change_effective(added, removed);
        }
        Acting {
            has_user: !is_root,
            has_group: self.has_group,
            has_groups: !self.groups.is_empty(),
            removed,
        }
    }

    /// Does something within which [`with_rights_taken`] takes them.
    pub(crate) fn within<T>(self, work: impl FnOnce() -> T) -> T {
        struct Ended;
        impl Drop for Ended {
            fn drop(&mut self) {
                CURRENT.set(None);
            }
        }
        CURRENT.set(Some(self));
        // By a panic too, which the thread may survive.
        let _ended = Ended;
        work()
    }
}

/// Does something with the rights of [`Rights::within`], if it is done there.
pub(crate) fn with_rights_taken<T>(work: impl FnOnce() -> T) -> T {
    let acting = CURRENT.with_borrow(|rights| rights.as_ref().map(Rights::take));
    let result = work();
    drop(acting);
    result
}

/// While it exists, this thread has the rights of a caller.
#[must_use]
pub(crate) struct Acting {
    has_user: bool,
    has_group: bool,
    has_groups: bool,
    removed: CapabilitySet,
}

impl Drop for Acting {
    fn drop(&mut self) {
        if self.has_user {
            setfsuid(0.into());
        }
        if !self.removed.is_empty() {
            change_effective(self.removed, CapabilitySet::empty());
        }
        if self.has_group {
            setfsgid(0.into());
        }
        if self.has_groups {
            let _refused = set_thread_groups(&[]);
        }
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Rights>> = const { RefCell::new(None) };
    /// Whether the thread has `CAP_SYS_RESOURCE`, once it is known.
    static HAS_RESOURCES: Cell<Option<bool>> = const { Cell::new(None) };
}

/// The daemon itself does nothing for which it needs `CAP_SYS_RESOURCE`, so a thread has it as its last caller had, and a
/// thread that serves one user changes it once.
fn set_resources(wanted: bool) {
    if HAS_RESOURCES.get() != Some(wanted) {
        let (added, removed) = if wanted {
            (CapabilitySet::SYS_RESOURCE, CapabilitySet::empty())
        } else {
            (CapabilitySet::empty(), CapabilitySet::SYS_RESOURCE)
        };
        change_effective(added, removed);
        HAS_RESOURCES.set(Some(wanted));
    }
}

fn change_effective(added: CapabilitySet, removed: CapabilitySet) {
    if let Ok(mut sets) = capabilities(None) {
        sets.effective = (sets.effective | added & sets.permitted) - removed;
        // What is permitted can be made effective, and given up.
        let _refused = set_capabilities(None, sets);
    }
}

/// The supplementary groups of a thread.
fn groups_of(thread: u32) -> Vec<Gid> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    let groups = groups.unwrap_or_default().split_whitespace();
    groups
        .filter_map(|group| Some(Gid::from_raw(group.parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(user: u32, group: u32) -> Caller {
        Caller {
            user,
            group,
            thread: rustix::thread::gettid().as_raw_nonzero().get() as u32,
        }
    }

    /// User, group and effective capabilities of this thread for files.
    fn now() -> (u32, u32, CapabilitySet) {
        let status = fs::read_to_string("/proc/thread-self/status").expect("it is there");
        let last_of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let last = line.and_then(|line| line.split_whitespace().next_back());
            last.expect("four numbers").parse().expect("a number")
        };
        let sets = capabilities(None).expect("its own");
        (last_of("Uid:"), last_of("Gid:"), sets.effective)
    }

    #[test]
    fn a_caller_has_what_passes_checks_and_no_right_of_root_to_space_and_set_id_bits() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: this test needs root");
            return;
        }
        let root = |set: CapabilitySet| set & capabilities(None).expect("its own").permitted;
        let privileged = CapabilitySet::FSETID | CapabilitySet::SYS_RESOURCE;
        let before = now();
        for _ in 0..2 {
            let acting = Rights::permitted(caller(65534, 7), Mode::empty()).take();
            let (user, group, effective) = now();
            assert_eq!((user, group), (65534, 7));
            assert_eq!(effective & (PASSES | privileged), root(PASSES));
            drop(acting);
            let acting = Rights::of(caller(65534, 7), Mode::empty()).take();
            assert_eq!(now().2 & (PASSES | privileged), CapabilitySet::empty());
            drop(acting);
            let acting = Rights::of(caller(0, 0), Mode::empty()).take();
            assert_eq!(now(), before);
            drop(acting);
            let without = Rights::of(caller(0, 0), Mode::empty()).keeping_set_id(false);
            let acting = without.take();
            assert_eq!(now().2 & privileged, root(CapabilitySet::SYS_RESOURCE));
            drop(acting);
            assert_eq!(now(), before);
        }
        let inside = Rights::of(caller(65534, 0), Mode::empty()).within(|| {
            assert_eq!(now(), before);
            with_rights_taken(now)
        });
        assert_eq!((inside.0, with_rights_taken(now).0), (65534, 0));
    }

    #[test]
    fn groups_are_read_of_who_changes_something_with_a_set_group_id_bit() {
        let own = rustix::process::getgroups().expect("its own");
        assert_eq!(groups_of(caller(0, 0).thread), own);
        assert_eq!(groups_of(0), []);
    }
}
