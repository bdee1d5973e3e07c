//! Which builder takes which node: the one that has its parent as long as it has room, else the least loaded.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::image::digest::Key;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// As a person wrote it.
    pub name: String,
    pub platforms: BTreeSet<String>,
    /// How much it takes beside the others.
    pub weight: u32,
}

#[derive(Debug)]
pub struct Pool {
    /// Nodes that are built at once, on all of them together.
    jobs: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    members: Vec<(Member, Load)>,
    /// Who has an image, since it was built there or was needed there.
    homes: HashMap<Key, BTreeSet<usize>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    running: u32,
    gone: bool,
}

/// A node is on this builder as long as this lives.
#[derive(Debug)]
pub struct Turn<'a> {
    pool: &'a Pool,
    pub builder: usize,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        if let Some((_, load)) = state.members.get_mut(self.builder) {
            load.running = load.running.saturating_sub(1);
        }
    }
}

impl Pool {
    pub fn new(members: Vec<Member>, jobs: usize) -> Pool {
        let members = members.into_iter().map(|member| (member, Load::default())).collect();
        Pool { jobs: jobs.max(1), state: Mutex::new(State { members, homes: HashMap::new() }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None when no builder of this platform is left. `images` are those that the node needs, the one that it is built
    /// on first.
    pub fn take(&self, platform: &str, images: &[Key]) -> Option<Turn<'_>> {
        let mut state = self.lock();
        let fit = |member: &Member, load: &Load| !load.gone && member.platforms.contains(platform);
        let total: u32 = state.members.iter().filter(|(_, load)| !load.gone).map(|(member, _)| member.weight).sum();
        let share = |member: &Member| (self.jobs * member.weight as usize).div_ceil(total.max(1) as usize).max(1);
        // The load that it would have with this node, in comparable whole numbers.
        let load = |i: usize| {
            let (member, load) = &state.members[i];
            u64::from(load.running + 1) * u64::from(total.max(1)) / u64::from(member.weight.max(1))
        };
        let able: Vec<usize> =
            (0..state.members.len()).filter(|i| fit(&state.members[*i].0, &state.members[*i].1)).collect();
        let has_room = |i: usize| (state.members[i].1.running as usize) < share(&state.members[i].0);
        let has = |i: usize, image: &Key| state.homes.get(image).is_some_and(|homes| homes.contains(&i));
        let near = images
            .iter()
            .find_map(|image| able.iter().copied().filter(|i| has_room(*i) && has(*i, image)).min_by_key(|i| load(*i)));
        let builder = near.or_else(|| able.iter().copied().min_by_key(|i| load(*i)))?;
        state.members[builder].1.running += 1;
        Some(Turn { pool: self, builder })
    }

    pub fn name(&self, builder: usize) -> String {
        self.lock().members.get(builder).map(|(member, _)| member.name.clone()).unwrap_or_default()
    }

    /// From now on this builder has the image.
    pub fn has(&self, builder: usize, image: &Key) {
        self.lock().homes.entry(image.clone()).or_default().insert(builder);
    }

    /// It gets nothing more. Whether it is news.
    pub fn gone(&self, builder: usize) -> bool {
        let mut state = self.lock();
        for homes in state.homes.values_mut() {
            homes.remove(&builder);
        }
        state.members.get_mut(builder).is_some_and(|(_, load)| !std::mem::replace(&mut load.gone, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::digest::KeyHasher;

    fn member(name: &str, platforms: &[&str], weight: u32) -> Member {
        Member { name: name.into(), platforms: platforms.iter().map(|p| (*p).to_owned()).collect(), weight }
    }

    fn key(name: &str) -> Key {
        KeyHasher::new(name).finish()
    }

    #[test]
    fn a_node_goes_where_its_parent_is_as_long_as_there_is_room() {
        let amd64 = ["linux/amd64"];
        let pool = Pool::new(vec![member("a", &amd64, 1), member("b", &amd64, 1)], 4);
        pool.has(1, &key("base"));
        let images = [key("base")];
        let turns: Vec<Turn<'_>> = (0..4).map(|_| pool.take("linux/amd64", &images).unwrap()).collect();
        assert_eq!(turns.iter().map(|turn| turn.builder).collect::<Vec<_>>(), [1, 1, 0, 0]);
        drop(turns);
        // The image that it is built on counts more than one that it copies from.
        pool.has(0, &key("parent"));
        assert_eq!(pool.take("linux/amd64", &[key("parent"), key("base")]).unwrap().builder, 0);
    }

    #[test]
    fn loads_are_as_the_weights_are() {
        let amd64 = ["linux/amd64"];
        let pool = Pool::new(vec![member("small", &amd64, 1), member("large", &amd64, 3)], 8);
        let turns: Vec<Turn<'_>> = (0..8).map(|_| pool.take("linux/amd64", &[]).unwrap()).collect();
        assert_eq!(turns.iter().filter(|turn| turn.builder == 1).count(), 6);
    }

    #[test]
    fn builders_that_are_gone_or_of_another_platform_get_nothing() {
        let pool =
            Pool::new(vec![member("a", &["linux/amd64"], 1), member("b", &["linux/amd64", "linux/arm64"], 1)], 2);
        assert_eq!(pool.take("linux/arm64", &[]).unwrap().builder, 1);
        pool.has(1, &key("base"));
        assert!(pool.gone(1));
        assert!(!pool.gone(1));
        assert!(pool.take("linux/arm64", &[]).is_none());
        assert_eq!(pool.take("linux/amd64", &[key("base")]).unwrap().builder, 0);
    }
}
