//! What is under way with lines, each known by its ticket: fills, writes, hits that are being read and lines that move.
//!
//! Limits: those of one line are found by looking at all, which are as many as an engine has I/O in flight. A simulation
//! has none when it looks.

/// What a driver gives back when an operation is done, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    index: u32,
    /// The number of the operation among all; another one that has the same place in the table has another.
    generation: u64,
}

/// A fill, write, hit or move that is under way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Operation {
    /// That of its ticket; 0 when it is done.
    generation: u64,
    pub(crate) key: u64,
    /// Where its data go, if the cache keeps any. It is pinned.
    pub(crate) slot: Option<u32>,
    /// Units that will be valid when it is done, or of a hit or a move still are: those that nothing has touched since it began.
    pub(crate) units: u64,
    /// Units that it is putting into the slot now, whatever has touched them since.
    pub(crate) storing: u64,
    /// Of a write, the units that it touches; of all others none.
    pub(crate) written: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Operations {
    /// By the index of the ticket.
    table: Vec<Operation>,
    free: Vec<u32>,
    begun: u64,
}

impl Operations {
    #[inline]
    pub(crate) fn begin(&mut self, key: u64, slot: Option<u32>, units: u64, written: u64) -> Ticket {
        self.begun += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.table.push(Operation::default());
            self.table.len() as u32 - 1
        });
        // Field by field: a copy of the whole would wait for the fields to be stored.
        let operation = &mut self.table[index as usize];
        operation.generation = self.begun;
        operation.key = key;
        operation.slot = slot;
        operation.units = units;
        operation.storing = 0;
        operation.written = written;
        Ticket {
            index,
            generation: self.begun,
        }
    }

    /// Ends the operation of a ticket; `None` if it is done already.
    #[inline]
    pub(crate) fn end(&mut self, ticket: Ticket) -> Option<&Operation> {
        let operation = self.table.get_mut(ticket.index as usize)?;
        if operation.generation != ticket.generation {
            return None;
        }
        operation.generation = 0;
        self.free.push(ticket.index);
        Some(operation)
    }

    pub(crate) fn get(&self, ticket: Ticket) -> Option<&Operation> {
        let operation = self.table.get(ticket.index as usize)?;
        (operation.generation == ticket.generation).then_some(operation)
    }

    pub(crate) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Operation> {
        let operation = self.table.get_mut(ticket.index as usize)?;
        (operation.generation == ticket.generation).then_some(operation)
    }

    /// Whether nothing is under way.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.table.len()
    }

    /// What is under way on the line `key`.
    #[inline]
    pub(crate) fn of_line(&mut self, key: u64) -> impl Iterator<Item = &mut Operation> {
        let table = if self.is_empty() {
            &mut []
        } else {
            self.table.as_mut_slice()
        };
        let of_line = move |operation: &&mut Operation| operation.generation != 0 && operation.key == key;
        table.iter_mut().filter(of_line)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.table.capacity() * size_of::<Operation>() + self.free.capacity() * size_of::<u32>()
    }
}
