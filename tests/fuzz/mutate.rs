//! Random changes to inputs, the same ones every time.

pub struct Mutator {
    state: u64,
}

impl Mutator {
    pub fn new(name: &str) -> Mutator {
        // FNV-1a: any number will do, as long as it is not zero.
        let hash = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Mutator { state: name.bytes().fold(0xcbf2_9ce4_8422_2325, hash) | 1 }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// One of the inputs with one to eight changes.
    pub fn change(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut data = inputs[self.below(inputs.len())].clone();
        for _ in 0..self.below(8) + 1 {
            let other = self.below(inputs.len());
            self.once(&mut data, &inputs[other]);
        }
        data
    }

    fn once(&mut self, data: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(data.len() + 1);
        let end = (at + 1 + self.below(16)).min(data.len());
        match self.below(8) {
            0 if at < data.len() => data[at] ^= 1 << self.below(8),
            1 if at < data.len() => data[at] = [0, b'0', b'/', b'\n', b'"', b'$', 0x7f, 0xff][self.below(8)],
            2 => drop(data.drain(at.min(end)..end)),
            3 => data.insert(at, self.next() as u8),
            4 => {
                let again = data[at.min(end)..end].to_vec();
                drop(data.splice(at..at, again));
            }
            // A piece of another input, where it was or elsewhere.
            5 if !other.is_empty() => {
                let from = self.below(other.len());
                let to = (from + 1 + self.below(64)).min(other.len());
                drop(data.splice(at..at, other[from..to].iter().copied()));
            }
            6 if !other.is_empty() => {
                let from = at.min(other.len());
                data.truncate(from);
                data.extend_from_slice(&other[from..]);
            }
            // Blocks of a tar.
            7 if data.len() >= 1024 => {
                let (from, to) = (self.below(data.len() / 512) * 512, self.below(data.len() / 512) * 512);
                let block = data[from..from + 512].to_vec();
                data[to..to + 512].copy_from_slice(&block);
            }
            _ => {}
        }
    }
}
