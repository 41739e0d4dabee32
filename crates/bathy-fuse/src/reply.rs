//! The answer to one request, given once, from any thread.

use std::fmt;

use fuser::Errno;

type Callback<T> = Box<dyn FnOnce(Result<&T, Errno>) + Send>;

enum Inner<T: ?Sized> {
    Data(fuser::ReplyData),
    Written(fuser::ReplyWrite, u32),
    Empty(fuser::ReplyEmpty),
    Callback(Callback<T>),
}

/// The answer to one request. Dropping it unanswered reports an I/O error to the application.
pub struct Reply<T: ?Sized>(Inner<T>);

impl<T: ?Sized> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

impl<T: ?Sized> Reply<T> {
    /// A reply that calls `callback`: for tests and for services that stand before other services.
    pub fn callback(callback: impl FnOnce(Result<&T, Errno>) + Send + 'static) -> Self {
        Self(Inner::Callback(Box::new(callback)))
    }

    /// The request failed.
    pub fn error(self, errno: Errno) {
        match self.0 {
            Inner::Data(reply) => reply.error(errno),
            Inner::Written(reply, _) => reply.error(errno),
            Inner::Empty(reply) => reply.error(errno),
            Inner::Callback(callback) => callback(Err(errno)),
        }
    }
}

impl Reply<[u8]> {
    pub(crate) fn data(reply: fuser::ReplyData) -> Self {
        Self(Inner::Data(reply))
    }

    /// The bytes that were read.
    pub fn ok(self, bytes: &[u8]) {
        match self.0 {
            Inner::Data(reply) => reply.data(bytes),
            Inner::Callback(callback) => callback(Ok(bytes)),
            Inner::Written(..) | Inner::Empty(_) => unreachable!("only a read is answered with bytes"),
        }
    }
}

impl Reply<()> {
    pub(crate) fn written(reply: fuser::ReplyWrite, length: u32) -> Self {
        Self(Inner::Written(reply, length))
    }

    pub(crate) fn empty(reply: fuser::ReplyEmpty) -> Self {
        Self(Inner::Empty(reply))
    }

    /// The request was carried out.
    pub fn done(self) {
        match self.0 {
            Inner::Written(reply, length) => reply.written(length),
            Inner::Empty(reply) => reply.ok(),
            Inner::Callback(callback) => callback(Ok(&())),
            Inner::Data(_) => unreachable!("a read is answered with bytes"),
        }
    }
}
