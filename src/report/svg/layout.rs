//! Where the boxes and lines of a layered drawing go: from left to right, each box right of everything that it needs.
//!
//! The usual four steps: a column for each node (the longest way to it), an order within each column that crosses few
//! lines (each node goes to the mean of its neighbours, to and fro), places that keep lines straight (of all that keep
//! order and distance those nearest to the neighbours, found by pooling), and lines, which pass a column through a gap
//! of their own. All of it depends on the order of the input alone.

/// Between the middles of two boxes, and of a box and a line that passes.
const ROW: f64 = 34.0;
const PASSING: f64 = 20.0;
/// Between two columns.
const CHANNEL: f64 = 64.0;
pub const BOX_HEIGHT: f64 = 26.0;
const MARGIN: f64 = 12.0;
const SWEEPS: usize = 12;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// Left edge and middle of each box, in the order of the nodes.
    pub boxes: Vec<Point>,
    /// Of each edge, from the right of one box to the left of the other: a straight line within a column, a curve
    /// between two.
    pub lines: Vec<Vec<Point>>,
    pub width: f64,
    pub height: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    pub x: f64,
    pub y: f64,
}

/// `widths` are those of the boxes. Edges go from an earlier node to a later one; others are left out of account.
pub fn layout(widths: &[f64], edges: &[(usize, usize)]) -> Layout {
    if widths.is_empty() {
        return Layout { width: 2.0 * MARGIN, height: 2.0 * MARGIN, ..Layout::default() };
    }
    let mut grid = Grid::new(widths, edges);
    grid.order();
    grid.place();
    grid.draw(widths, edges)
}

/// A box, or a line from `node` on its way through a column.
#[derive(Clone, Copy, Debug)]
struct Item {
    node: usize,
    passes: bool,
    y: f64,
}

struct Grid {
    items: Vec<Item>,
    /// Items of each column, from above.
    columns: Vec<Vec<usize>>,
    column: Vec<usize>,
    /// Neighbours in the column before and after.
    before: Vec<Vec<usize>>,
    after: Vec<Vec<usize>>,
    /// For each edge that is drawn the items that it goes through.
    ways: Vec<Vec<usize>>,
}

impl Grid {
    fn new(widths: &[f64], edges: &[(usize, usize)]) -> Grid {
        let count = widths.len();
        let forward = |&&(from, to): &&(usize, usize)| from < to && to < count;
        let mut column = vec![0; count];
        for to in 0..count {
            let needs = edges.iter().filter(forward).filter(|edge| edge.1 == to);
            column[to] = needs.map(|edge| column[edge.0] + 1).max().unwrap_or(0);
        }
        // What needs nothing stands right before what needs it first, not far off.
        for from in 0..count {
            let free = !edges.iter().filter(forward).any(|edge| edge.1 == from);
            let first = edges.iter().filter(forward).filter(|edge| edge.0 == from).map(|edge| column[edge.1]).min();
            if let Some(first) = first.filter(|_| free) {
                column[from] = first - 1;
            }
        }
        let mut grid = Grid {
            items: (0..count).map(|node| Item { node, passes: false, y: 0.0 }).collect(),
            columns: vec![Vec::new(); column.iter().max().map_or(1, |last| last + 1)],
            column,
            before: vec![Vec::new(); count],
            after: vec![Vec::new(); count],
            ways: Vec::new(),
        };
        for edge in edges {
            let way = if forward(&edge) { grid.way(edge.0, edge.1) } else { Vec::new() };
            grid.ways.push(way);
        }
        // Depth first, so that a tree has no crossings from the start.
        let mut seen = vec![false; grid.items.len()];
        for root in 0..count {
            let mut stack = vec![root];
            while let Some(item) = stack.pop() {
                if !std::mem::replace(&mut seen[item], true) {
                    grid.columns[grid.column[item]].push(item);
                    stack.extend(grid.after[item].iter().rev());
                }
            }
        }
        grid
    }

    /// Lines from one node to several share their way.
    fn way(&mut self, from: usize, to: usize) -> Vec<usize> {
        let mut way = vec![from];
        let mut at = from;
        for column in self.column[from] + 1..self.column[to] {
            let shared = self.after[at].iter().copied().find(|next| self.items[*next].passes);
            let next = shared.unwrap_or_else(|| {
                self.items.push(Item { node: from, passes: true, y: 0.0 });
                self.column.push(column);
                self.before.push(vec![at]);
                self.after.push(Vec::new());
                self.after[at].push(self.items.len() - 1);
                self.items.len() - 1
            });
            way.push(next);
            at = next;
        }
        if !self.after[at].contains(&to) {
            self.after[at].push(to);
            self.before[to].push(at);
        }
        way.push(to);
        way
    }

    fn order(&mut self) {
        let mut best = (self.crossings(), self.columns.clone());
        for sweep in 0..SWEEPS {
            if best.0 == 0 {
                break;
            }
            let last = self.columns.len() - 1;
            for i in 0..=last {
                let (column, neighbours) = if sweep % 2 == 0 { (i, &self.before) } else { (last - i, &self.after) };
                let place = self.places();
                let mean = |item: usize| match neighbours[item].as_slice() {
                    [] => place[item],
                    near => near.iter().map(|n| place[*n]).sum::<f64>() / near.len() as f64,
                };
                let mut items = std::mem::take(&mut self.columns[column]);
                items.sort_by(|a, b| mean(*a).total_cmp(&mean(*b)));
                self.columns[column] = items;
            }
            let crossings = self.crossings();
            if crossings < best.0 {
                best = (crossings, self.columns.clone());
            }
        }
        self.columns = best.1;
    }

    /// Where each item stands in its column, from 0 to 1.
    fn places(&self) -> Vec<f64> {
        let mut place = vec![0.0; self.items.len()];
        for column in &self.columns {
            for (i, item) in column.iter().enumerate() {
                place[*item] = (i as f64 + 0.5) / column.len() as f64;
            }
        }
        place
    }

    fn crossings(&self) -> usize {
        let place = self.places();
        let mut crossings = 0;
        for column in &self.columns {
            let lines: Vec<(usize, usize)> =
                column.iter().flat_map(|from| self.after[*from].iter().map(|to| (*from, *to))).collect();
            for (i, a) in lines.iter().enumerate() {
                let crosses = |b: &&(usize, usize)| (place[a.0] - place[b.0]) * (place[a.1] - place[b.1]) < 0.0;
                crossings += lines[i + 1..].iter().filter(crosses).count();
            }
        }
        crossings
    }

    fn place(&mut self) {
        for column in self.columns.clone() {
            let mut y = 0.0;
            for (i, item) in column.iter().enumerate() {
                y += if i == 0 { 0.0 } else { self.distance(column[i - 1], *item) };
                self.items[*item].y = y;
            }
        }
        // Ends with parents going to the middle of their children.
        for sweep in 0..2 * SWEEPS {
            let last = self.columns.len() - 1;
            for i in 0..=last {
                let back = sweep % 2 == 1;
                let column = self.columns[if back { last - i } else { i }].clone();
                let wanted: Vec<f64> = column
                    .iter()
                    .map(|item| {
                        let near = if back { &self.after[*item] } else { &self.before[*item] };
                        match near.len() {
                            0 => self.items[*item].y,
                            n => near.iter().map(|n| self.items[*n].y).sum::<f64>() / n as f64,
                        }
                    })
                    .collect();
                let mut offsets = vec![0.0; column.len()];
                for i in 1..column.len() {
                    offsets[i] = offsets[i - 1] + self.distance(column[i - 1], column[i]);
                }
                for (item, y) in column.iter().zip(nearest(&wanted, &offsets)) {
                    self.items[*item].y = y;
                }
            }
        }
        let top = self.items.iter().map(|item| item.y).fold(f64::INFINITY, f64::min);
        for item in &mut self.items {
            item.y = item.y - top + MARGIN + BOX_HEIGHT / 2.0;
        }
    }

    fn distance(&self, above: usize, below: usize) -> f64 {
        if self.items[above].passes || self.items[below].passes { PASSING } else { ROW }
    }

    fn draw(&self, widths: &[f64], edges: &[(usize, usize)]) -> Layout {
        let mut lefts = Vec::new();
        let mut x = MARGIN;
        let mut wide = Vec::new();
        for column in &self.columns {
            let boxes = column.iter().filter(|item| !self.items[**item].passes);
            let width = boxes.map(|item| widths[self.items[*item].node]).fold(0.0, f64::max);
            lefts.push(x);
            wide.push(width);
            x += width + CHANNEL;
        }
        let left = |item: usize| Point { x: lefts[self.column[item]], y: self.items[item].y };
        let right = |item: usize| {
            let column = self.column[item];
            let width = if self.items[item].passes { wide[column] } else { widths[self.items[item].node] };
            Point { x: lefts[column] + width, y: self.items[item].y }
        };
        let lines = self.ways.iter().zip(edges).map(|(way, _)| match way.as_slice() {
            [] => Vec::new(),
            [first, between @ .., last] => {
                let mut line = vec![right(*first)];
                line.extend(between.iter().flat_map(|item| [left(*item), right(*item)]));
                line.push(left(*last));
                line
            }
            [only] => vec![left(*only)],
        });
        let lowest = self.items.iter().map(|item| item.y).fold(0.0, f64::max);
        Layout {
            boxes: (0..widths.len()).map(left).collect(),
            lines: lines.collect(),
            width: x - CHANNEL + MARGIN,
            height: lowest + BOX_HEIGHT / 2.0 + MARGIN,
        }
    }
}

/// Of all places with at least the distances that `offsets` has between neighbours those nearest to the `wanted` ones
/// (least squares): neighbours that would be too close are moved as one block to the mean of what they want.
fn nearest(wanted: &[f64], offsets: &[f64]) -> Vec<f64> {
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for (want, offset) in wanted.iter().zip(offsets) {
        let mut block = (want - offset, 1);
        while let Some(&(mean, size)) = blocks.last()
            && mean >= block.0
        {
            blocks.pop();
            let all = size + block.1;
            block = ((mean * size as f64 + block.0 * block.1 as f64) / all as f64, all);
        }
        blocks.push(block);
    }
    let means = blocks.into_iter().flat_map(|(mean, size)| std::iter::repeat_n(mean, size));
    means.zip(offsets).map(|(mean, offset)| mean + offset).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_parent_stands_in_the_middle_of_its_children() {
        let made = layout(&[50.0; 4], &[(0, 1), (0, 2), (0, 3)]);
        let y: Vec<f64> = made.boxes.iter().map(|b| b.y - made.boxes[1].y).collect();
        assert_eq!(y, [ROW, 0.0, ROW, 2.0 * ROW]);
        assert_eq!(made.boxes[1].x - made.boxes[0].x, 50.0 + CHANNEL);
        assert_eq!(made.lines[1][0].y, made.lines[1][1].y);
        assert_eq!(layout(&[], &[]).lines.len(), 0);
    }

    #[test]
    fn a_line_goes_around_the_boxes_of_the_columns_between() {
        let made = layout(&[50.0; 3], &[(0, 1), (1, 2), (0, 2)]);
        let passes = &made.lines[2];
        assert_eq!(passes.len(), 4);
        assert!((passes[1].y - made.boxes[1].y).abs() >= PASSING - 1e-9);
        assert_eq!((passes[1].y, passes[2].x - passes[1].x), (passes[2].y, 50.0));
    }

    #[test]
    fn lines_cross_only_where_they_must() {
        // Given in an order that crosses.
        let grid = |edges: &[(usize, usize)]| {
            let mut grid = Grid::new(&[10.0; 6], edges);
            grid.order();
            grid.crossings()
        };
        assert_eq!(grid(&[(0, 5), (1, 4), (2, 3)]), 0);
        assert_eq!(grid(&[(0, 3), (0, 4), (1, 3), (1, 4)]), 1);
    }

    proptest! {
        #[test]
        fn boxes_never_touch_and_everything_is_inside(
            needs in proptest::collection::vec(proptest::collection::vec(0usize..40, 0..3), 1..40),
        ) {
            let edges: Vec<(usize, usize)> =
                needs.iter().enumerate().flat_map(|(to, from)| from.iter().map(move |from| (*from, to))).collect();
            let widths: Vec<f64> = (0..needs.len()).map(|i| 40.0 + (i % 7) as f64 * 9.0).collect();
            let made = layout(&widths, &edges);
            prop_assert_eq!(&made, &layout(&widths, &edges));
            for (i, a) in made.boxes.iter().enumerate() {
                prop_assert!(a.x >= 0.0 && a.x + widths[i] <= made.width);
                prop_assert!(a.y >= BOX_HEIGHT / 2.0 && a.y + BOX_HEIGHT / 2.0 <= made.height);
                for (j, b) in made.boxes.iter().enumerate().skip(i + 1) {
                    let apart = (a.y - b.y).abs() >= BOX_HEIGHT || a.x + widths[i] <= b.x || b.x + widths[j] <= a.x;
                    prop_assert!(apart, "{i} {a:?} and {j} {b:?}");
                }
            }
            for ((from, to), line) in edges.iter().zip(&made.lines).filter(|((from, to), _)| from < to) {
                prop_assert_eq!(line.first().map(|p| p.x), Some(made.boxes[*from].x + widths[*from]));
                prop_assert_eq!(line.last(), Some(&made.boxes[*to]));
                prop_assert!(line.windows(2).all(|pair| pair[0].x < pair[1].x));
            }
        }
    }
}
