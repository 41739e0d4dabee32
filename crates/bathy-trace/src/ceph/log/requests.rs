//! Requests that wait for their reply, in bounded memory.

use std::collections::HashMap;

use super::line::Request;
use crate::names::NameTable;

/// An OSD works on a few hundred requests at a time; these are those of a whole host.
const REQUESTS_MAX: usize = 1 << 16;
/// Clients, and addresses, of one host's logs.
const NAMES_MAX: usize = 1 << 16;

/// A request that waits for its reply.
pub(crate) struct Waiting {
    pub(crate) time_ns: u64,
    pub(crate) pool: u32,
    pub(crate) seed: u32,
    address: u32,
}

/// A reply names the address of its client, statistics name the client itself; an address with its nonce is of one client.
#[derive(Default)]
pub(crate) struct Requests {
    clients: NameTable,
    addresses: NameTable,
    client_of_address: HashMap<u32, u32>,
    waiting: HashMap<(u32, u64), Waiting>,
}

impl Requests {
    /// Remembers a request; one that was sent again replaces the first. Returns how many had to be forgotten.
    pub(crate) fn add(&mut self, request: &Request<'_>) -> u64 {
        let mut forgotten = 0;
        if self.waiting.len() >= REQUESTS_MAX {
            forgotten = self.forget();
        }
        let Some((client, address)) = self.intern(request).or_else(|| {
            forgotten += self.forget();
            self.intern(request)
        }) else {
            return forgotten + 1;
        };
        self.client_of_address.insert(address, client);
        self.waiting.insert(
            (client, request.tid),
            Waiting {
                time_ns: request.time_ns,
                pool: request.pg.pool,
                seed: request.pg.seed,
                address,
            },
        );
        forgotten
    }

    fn intern(&mut self, request: &Request<'_>) -> Option<(u32, u32)> {
        // Nearly all are known, and then nothing is allocated.
        let known = |table: &mut NameTable, name: &[u8]| {
            table.number_of(name).or_else(|| table.intern(name, NAMES_MAX))
        };
        Some((
            known(&mut self.clients, request.client)?,
            known(&mut self.addresses, request.address)?,
        ))
    }

    fn forget(&mut self) -> u64 {
        let forgotten = self.waiting.len() as u64;
        *self = Self::default();
        forgotten
    }

    /// Forgets a request whose statistics are known. Returns the address that it came from.
    pub(crate) fn take_of_client(&mut self, client: &[u8], tid: u64) -> Option<u32> {
        if self.waiting.is_empty() {
            return None;
        }
        let client = self.clients.number_of(client)?;
        Some(self.waiting.remove(&(client, tid))?.address)
    }

    /// Client and request of a reply.
    pub(crate) fn take_of_address(&mut self, address: &[u8], tid: u64) -> Option<(u32, Waiting)> {
        let address = self.addresses.number_of(address)?;
        let client = *self.client_of_address.get(&address)?;
        Some((client, self.waiting.remove(&(client, tid))?))
    }

    /// A client by its number.
    pub(crate) fn client(&self, number: u32) -> &[u8] {
        self.clients.get(number).unwrap_or_default().as_bytes()
    }

    /// An address by its number.
    pub(crate) fn address(&self, number: u32) -> &[u8] {
        self.addresses.get(number).unwrap_or_default().as_bytes()
    }
}
