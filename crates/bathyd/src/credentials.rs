//! Acting as the caller while something is created.
//!
//! A new file must belong to its caller from the first moment: a `chown` afterwards would let others see it as root's, and a
//! crash between the two would leave it so. `setfsuid` and `setfsgid` hold for the calling thread alone. They take the
//! capabilities of file systems away; the one to pass permission checks is taken back, because the kernel has made these
//! checks already, with the caller's supplementary groups, which are not known here. `CAP_FSETID` stays away, so that the
//! file system below clears the set-group-id bit where it has to. The file gets its group and its default ACL from the
//! directory as that file system does it.

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// While it exists, this thread creates files as the caller.
pub(crate) struct ActingAs;

impl ActingAs {
    pub(crate) fn caller(request: &fuser::Request) -> Option<Self> {
        let (user, group) = (request.uid(), request.gid());
        if user == 0 && group == 0 {
            return None;
        }
        let acting = Self;
        setfsgid(Gid::from_raw(group));
        setfsuid(Uid::from_raw(user));
        if user != 0 {
            if let Ok(mut sets) = capabilities(None) {
                sets.effective |= CapabilitySet::DAC_OVERRIDE & sets.permitted;
                // Without it the file system below checks permissions once more, more strictly.
                let _refused = set_capabilities(None, sets);
            }
        }
        Some(acting)
    }
}

impl Drop for ActingAs {
    fn drop(&mut self) {
        // With user 0 the kernel gives back the capabilities of file systems that the thread is permitted.
        setfsuid(Uid::from_raw(0));
        setfsgid(Gid::from_raw(0));
    }
}
