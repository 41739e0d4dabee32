//! Reference implementations that remember more than what is resident.

use crate::Model;

pub(crate) fn take(list: &mut Vec<u64>, key: u64) -> bool {
    let position = list.iter().position(|&other| other == key);
    position.is_some_and(|position| {
        list.remove(position);
        true
    })
}

/// Johnson, Shasha, VLDB 1994, the full version.
pub(crate) struct TwoQ {
    capacity: usize,
    a1_in: Vec<u64>,
    am: Vec<u64>,
    a1_out: Vec<u64>,
}

impl TwoQ {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            a1_in: Vec::new(),
            am: Vec::new(),
            a1_out: Vec::new(),
        }
    }
}

impl Model for TwoQ {
    fn touch(&mut self, key: u64) -> bool {
        if take(&mut self.am, key) {
            self.am.push(key);
            return true;
        }
        self.a1_in.contains(&key)
    }

    fn miss(&mut self, key: u64) -> Vec<u64> {
        let mut evicted = Vec::new();
        let was_out = take(&mut self.a1_out, key);
        if self.a1_in.len() + self.am.len() == self.capacity {
            if self.a1_in.len() > self.capacity / 4 {
                let victim = self.a1_in.remove(0);
                self.a1_out.push(victim);
                evicted.push(victim);
                if self.a1_out.len() > self.capacity / 2 {
                    self.a1_out.remove(0);
                }
            } else {
                evicted.push(self.am.remove(0));
            }
        }
        if was_out {
            self.am.push(key);
        } else {
            self.a1_in.push(key);
        }
        evicted
    }

    fn remove(&mut self, key: u64) {
        for list in [&mut self.a1_in, &mut self.am, &mut self.a1_out] {
            take(list, key);
        }
    }

    fn residents(&self) -> Vec<u64> {
        [&self.a1_in[..], &self.am].concat()
    }
}

/// Megiddo, Modha, FAST 2003, figure 4.
pub(crate) struct Arc {
    c: usize,
    p: f64,
    t1: Vec<u64>,
    t2: Vec<u64>,
    b1: Vec<u64>,
    b2: Vec<u64>,
}

impl Arc {
    pub(crate) fn new(c: usize) -> Self {
        Self {
            c,
            p: 0.0,
            t1: Vec::new(),
            t2: Vec::new(),
            b1: Vec::new(),
            b2: Vec::new(),
        }
    }

    fn replace(&mut self, in_b2: bool) -> Vec<u64> {
        if self.t1.len() + self.t2.len() < self.c {
            return Vec::new();
        }
        let t1 = self.t1.len() as f64;
        let victim = if self.t2.is_empty() || t1 >= 1.0 && ((in_b2 && t1 >= self.p) || t1 > self.p) {
            self.b1.push(self.t1.remove(0));
            self.b1.last()
        } else {
            self.b2.push(self.t2.remove(0));
            self.b2.last()
        };
        victim.copied().into_iter().collect()
    }
}

impl Model for Arc {
    fn touch(&mut self, key: u64) -> bool {
        let resident = take(&mut self.t1, key) || take(&mut self.t2, key);
        if resident {
            self.t2.push(key);
        }
        resident
    }

    fn miss(&mut self, key: u64) -> Vec<u64> {
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if take(&mut self.b1, key) {
            let delta = if b1 >= b2 { 1.0 } else { b2 / b1 };
            self.p = (self.p + delta).min(self.c as f64);
            let evicted = self.replace(false);
            self.t2.push(key);
            return evicted;
        }
        if take(&mut self.b2, key) {
            let delta = if b2 >= b1 { 1.0 } else { b1 / b2 };
            self.p = (self.p - delta).max(0.0);
            let evicted = self.replace(true);
            self.t2.push(key);
            return evicted;
        }
        let l1 = self.t1.len() + self.b1.len();
        let evicted = if l1 == self.c && self.t1.len() == self.c {
            vec![self.t1.remove(0)]
        } else {
            if l1 == self.c {
                self.b1.remove(0);
            } else if l1 + self.t2.len() + self.b2.len() == 2 * self.c {
                self.b2.remove(0);
            }
            self.replace(false)
        };
        self.t1.push(key);
        evicted
    }

    fn remove(&mut self, key: u64) {
        for list in [&mut self.t1, &mut self.t2, &mut self.b1, &mut self.b2] {
            take(list, key);
        }
    }

    fn residents(&self) -> Vec<u64> {
        [&self.t1[..], &self.t2].concat()
    }
}

/// Jiang, Zhang, SIGMETRICS 2002, section 3, with the stack bounded to twice the lines.
pub(crate) struct Lirs {
    capacity: usize,
    hir_capacity: usize,
    stack: Vec<u64>,
    lir: Vec<u64>,
    q: Vec<u64>,
    /// Keys in the stack that are not resident, in the order in which they left.
    gone: Vec<u64>,
}

impl Lirs {
    pub(crate) fn new(capacity: usize) -> Self {
        let hir_capacity = (capacity / 100).max(1);
        Self {
            capacity,
            hir_capacity,
            stack: Vec::new(),
            lir: Vec::new(),
            q: Vec::new(),
            gone: Vec::new(),
        }
    }

    fn prune(&mut self) {
        while let Some(&bottom) = self.stack.first() {
            if self.lir.contains(&bottom) {
                break;
            }
            self.stack.remove(0);
            take(&mut self.gone, bottom);
        }
    }

    fn make_lir(&mut self, key: u64) {
        self.lir.push(key);
        if self.lir.len() > self.capacity - self.hir_capacity {
            self.prune();
            let demoted = self.stack.remove(0);
            take(&mut self.lir, demoted);
            self.q.push(demoted);
        }
        self.prune();
    }

    fn bound(&mut self) {
        while self.stack.len() > 2 * self.capacity && !self.gone.is_empty() {
            let forgotten = self.gone.remove(0);
            take(&mut self.stack, forgotten);
        }
    }
}

impl Model for Lirs {
    fn touch(&mut self, key: u64) -> bool {
        if !self.lir.contains(&key) && !self.q.contains(&key) {
            return false;
        }
        let was_in_stack = take(&mut self.stack, key);
        self.stack.push(key);
        if self.lir.contains(&key) {
            self.prune();
        } else if was_in_stack {
            take(&mut self.q, key);
            self.make_lir(key);
        } else {
            take(&mut self.q, key);
            self.q.push(key);
            self.bound();
        }
        true
    }

    fn miss(&mut self, key: u64) -> Vec<u64> {
        let was_in_stack = take(&mut self.gone, key);
        let mut evicted = Vec::new();
        if self.lir.len() + self.q.len() == self.capacity {
            let victim = self.q.remove(0);
            evicted.push(victim);
            if self.stack.contains(&victim) {
                self.gone.push(victim);
            }
        }
        take(&mut self.stack, key);
        self.stack.push(key);
        if was_in_stack || self.lir.len() < self.capacity - self.hir_capacity {
            self.make_lir(key);
        } else {
            self.q.push(key);
        }
        self.bound();
        evicted
    }

    fn remove(&mut self, key: u64) {
        let lists = [&mut self.stack, &mut self.lir, &mut self.q, &mut self.gone];
        let held = lists.map(|list| take(list, key)).contains(&true);
        // Removing a key that is in no list changes nothing.
        if held {
            self.prune();
        }
    }

    fn residents(&self) -> Vec<u64> {
        [&self.lir[..], &self.q].concat()
    }
}
