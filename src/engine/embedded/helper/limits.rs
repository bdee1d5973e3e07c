//! Resource limits of a step, set on the step's own process before it gives up what could raise them.

use rustix::process::{Resource as Kernel, Rlimit, getrlimit, setrlimit};

use crate::engine::surroundings::{Resource, Ulimit};
use crate::error::{Error, Result};

pub fn set(limits: &[Ulimit]) -> Result<()> {
    for limit in limits {
        let resource = kernel(limit.resource);
        let wanted = Rlimit { current: limit.soft, maximum: limit.hard };
        setrlimit(resource, wanted).map_err(|e| {
            let name = limit.resource.as_str();
            let said = |bound: Option<u64>| bound.map_or_else(|| "unlimited".to_owned(), |b| b.to_string());
            let bounds = format!("{}:{}", said(limit.soft), said(limit.hard));
            Error::bad_input(format!("cannot set the limit `{name}` of a step to {bounds}"))
                .cause(e)
                .hint(format!("the hard limit of Kollage itself is {}", said(getrlimit(resource).maximum)))
        })?;
    }
    Ok(())
}

fn kernel(resource: Resource) -> Kernel {
    match resource {
        Resource::Core => Kernel::Core,
        Resource::Cpu => Kernel::Cpu,
        Resource::Data => Kernel::Data,
        Resource::Fsize => Kernel::Fsize,
        Resource::Locks => Kernel::Locks,
        Resource::Memlock => Kernel::Memlock,
        Resource::Msgqueue => Kernel::Msgqueue,
        Resource::Nice => Kernel::Nice,
        Resource::Nofile => Kernel::Nofile,
        Resource::Nproc => Kernel::Nproc,
        Resource::Rss => Kernel::Rss,
        Resource::Rtprio => Kernel::Rtprio,
        Resource::Rttime => Kernel::Rttime,
        Resource::Sigpending => Kernel::Sigpending,
        Resource::Stack => Kernel::Stack,
    }
}
