//! Who made a request.

/// Who made a request, as the kernel says: the user and group by which it decides about files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// `fsuid` of the caller.
    pub user: u32,
    /// `fsgid` of the caller.
    pub group: u32,
    /// Its thread, or 0 if this process cannot see it.
    pub thread: u32,
}

impl Caller {
    /// Of a request.
    pub fn of(request: &fuser::Request) -> Self {
        Self {
            user: request.uid(),
            group: request.gid(),
            thread: request.pid(),
        }
    }
}
