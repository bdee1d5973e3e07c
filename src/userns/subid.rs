//! /etc/subuid and /etc/subgid: which ids of the machine an ordinary user may use in namespaces of their own.

use super::Extent;

/// The ranges of a user in the text of one of the files, in their order: a line has the user's name or number, the
/// first id, and how many. Lines that make no sense say nothing, as for newuidmap.
pub(super) fn ranges(text: &str, names: &[String]) -> Vec<(u32, u32)> {
    let line = |line: &str| {
        let mut fields = line.trim().split(':');
        let owner = fields.next()?;
        let (first, count) = (fields.next()?.parse::<u32>().ok()?, fields.next()?.parse::<u32>().ok()?);
        let whole = fields.next().is_none() && count > 0 && first.checked_add(count).is_some();
        (whole && names.iter().any(|name| name == owner)).then_some((first, count))
    };
    let mut found: Vec<(u32, u32)> = Vec::new();
    for (first, count) in text.lines().filter_map(line) {
        // By name and by number: the same range twice would be refused by the kernel.
        let overlaps = found.iter().any(|(f, c)| first < f + c && *f < first + count);
        if !overlaps {
            found.push((first, count));
        }
    }
    found
}

/// The map of a namespace in which `own` is 0 and the ranges follow from 1 on.
pub(super) fn map(own: u32, ranges: &[(u32, u32)]) -> Vec<Extent> {
    let mut map = vec![Extent { inside: 0, outside: own, count: 1 }];
    let mut next = 1u32;
    for (first, count) in ranges {
        // What would go beyond the largest id is left out.
        let count = (*count).min(u32::MAX - 1 - next);
        if count > 0 {
            map.push(Extent { inside: next, outside: *first, count });
            next += count;
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_ranges_are_found_by_name_and_by_number() {
        let text = "# no line\nroot:100000:65536\nkim:165536:65536\n1001:300000:1000\nkim:165536:65536\nkim:x:1\nkim:1\n\
                    kim:5:0\nkimberly:1:1\nkim:4294967000:1000\n  kim:400000:10  \nkim:1:2:3\n";
        let names = ["kim".to_owned(), "1001".to_owned()];
        assert_eq!(ranges(text, &names), [(165_536, 65_536), (300_000, 1000), (400_000, 10)]);
        assert_eq!(ranges(text, &["nobody".to_owned()]), []);
        assert_eq!(ranges("", &names), []);
    }

    #[test]
    fn ranges_follow_each_other_inside() {
        let extent = |inside, outside, count| Extent { inside, outside, count };
        assert_eq!(map(1001, &[]), [extent(0, 1001, 1)]);
        assert_eq!(
            map(1001, &[(100_000, 65_536), (300_000, 10)]),
            [extent(0, 1001, 1), extent(1, 100_000, 65_536), extent(65_537, 300_000, 10)]
        );
        let huge = map(1, &[(2, 4_000_000_000), (4_000_000_002, 290_000_000), (4_290_000_100, 4_000_000)]);
        let end = huge.last().map(|e| u64::from(e.inside) + u64::from(e.count));
        assert!(end.is_some_and(|end| end <= u64::from(u32::MAX)));
    }
}
