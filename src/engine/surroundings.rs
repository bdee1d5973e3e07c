//! What RUN steps find around them because the command line says so: whether there is a network, names of hosts,
//! resource limits, the size of /dev/shm. A step can see all of it, so all of it is part of the step's key.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::dockerfile::step::Network;
use crate::image::digest::KeyHasher;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Of steps without a `--network` of their own.
    pub network: Network,
    /// Lines of /etc/hosts, in the order in which they were given; names in lower case.
    pub hosts: Vec<(String, IpAddr)>,
    /// Each resource once.
    pub ulimits: Vec<Ulimit>,
    /// Bytes; None is Docker's 64 MiB.
    pub shm_size: Option<u64>,
}

/// `--ulimit NAME=SOFT[:HARD]`; None is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ulimit {
    pub resource: Resource,
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

/// What Docker knows limits of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Resource {
    Core,
    Cpu,
    Data,
    Fsize,
    Locks,
    Memlock,
    Msgqueue,
    Nice,
    Nofile,
    Nproc,
    Rss,
    Rtprio,
    Rttime,
    Sigpending,
    Stack,
}

impl Resource {
    pub const ALL: [Resource; 15] = [
        Resource::Core,
        Resource::Cpu,
        Resource::Data,
        Resource::Fsize,
        Resource::Locks,
        Resource::Memlock,
        Resource::Msgqueue,
        Resource::Nice,
        Resource::Nofile,
        Resource::Nproc,
        Resource::Rss,
        Resource::Rtprio,
        Resource::Rttime,
        Resource::Sigpending,
        Resource::Stack,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Resource::Core => "core",
            Resource::Cpu => "cpu",
            Resource::Data => "data",
            Resource::Fsize => "fsize",
            Resource::Locks => "locks",
            Resource::Memlock => "memlock",
            Resource::Msgqueue => "msgqueue",
            Resource::Nice => "nice",
            Resource::Nofile => "nofile",
            Resource::Nproc => "nproc",
            Resource::Rss => "rss",
            Resource::Rtprio => "rtprio",
            Resource::Rttime => "rttime",
            Resource::Sigpending => "sigpending",
            Resource::Stack => "stack",
        }
    }
}

impl Surroundings {
    /// Nothing is added for what is as always: a build without these flags has the keys that it always had.
    pub fn add_to(&self, hasher: &mut KeyHasher, step: Network) {
        if step == Network::Default && self.network == Network::None {
            hasher.part("network of the build", "none");
        }
        for (name, address) in &self.hosts {
            hasher.part("host", name).part("address", address.to_string());
        }
        for limit in &self.ulimits {
            hasher.part("ulimit", limit.resource.as_str()).part("bounds", format!("{:?} {:?}", limit.soft, limit.hard));
        }
        if let Some(size) = self.shm_size {
            hasher.part("shm size", size.to_string());
        }
    }

    /// As they stand in /etc/hosts.
    pub fn host_lines(&self) -> String {
        self.hosts.iter().map(|(name, address)| format!("{address}\t{name}\n")).collect()
    }
}
