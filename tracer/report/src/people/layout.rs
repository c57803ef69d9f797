//! Which columns fit a terminal, and how wide names may be.

use crate::table::ColumnKind;

/// Cells between two columns.
pub(super) const GAP: usize = 2;

/// The part of the terminal that names keep for themselves: one of so many.
const NAMES_PART: usize = 5;

/// Parts for one column of names, and for several.
const ONE: usize = 2;
const SEVERAL: usize = 3;

/// Cells that names keep for themselves on a narrow terminal, and on a wide one.
const LEAST_NAMES: usize = 24;
const MOST_NAMES: usize = 64;

/// A column before its width is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draft {
    /// Cells that its longest text takes.
    pub(super) width: usize,
    /// Cells that most of its texts do not exceed: of names, what figures must leave free.
    pub(super) typical: usize,
    pub(super) kind: ColumnKind,
    pub(super) rank: u8,
    /// Whether it goes together with the others of its rank that are paired.
    pub(super) is_paired: bool,
}

/// The columns that fit, by their places, each with its width. Of the others those of the highest rank go first, of
/// these the rightmost; names always stay.
pub(super) fn fit(columns: &[Draft], width: usize) -> Vec<(usize, usize)> {
    let names: Vec<usize> =
        columns.iter().filter(|column| column.kind == ColumnKind::Name).map(|name| name.width).collect();
    let parts = if names.len() > 1 { SEVERAL } else { ONE };
    let kept_free = (width * parts / NAMES_PART).clamp(LEAST_NAMES.min(width), MOST_NAMES * parts / ONE);
    let typical = columns.iter().filter(|column| column.kind == ColumnKind::Name);
    let typical: usize = typical.map(|name| name.typical.max(LEAST_NAMES).min(name.width)).sum();
    let for_names = (typical + GAP * names.len().saturating_sub(1)).min(kept_free);
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    let taken = |kept: &[usize]| -> usize {
        kept.iter()
            .map(|&place| columns[place])
            .filter(|column| column.kind != ColumnKind::Name)
            .map(|c| c.width + GAP)
            .sum()
    };
    while taken(&kept) + for_names > width {
        let droppable = kept.iter().filter(|&&place| columns[place].kind != ColumnKind::Name);
        let Some(&worst) = droppable.max_by_key(|&&place| (columns[place].rank, place)) else { break };
        let goes = |column: Draft| column.is_paired && columns[worst].is_paired && column.rank == columns[worst].rank;
        kept.retain(|&place| place != worst && !goes(columns[place]));
    }
    let gaps = GAP * names.len().saturating_sub(1);
    let widths = share(&names, width.saturating_sub(taken(&kept) + gaps));
    let mut widths = widths.into_iter();
    let width_of = |place: usize| match columns[place].kind {
        ColumnKind::Name => (place, widths.next().unwrap_or(0)),
        ColumnKind::Figure | ColumnKind::Label => (place, columns[place].width),
    };
    kept.into_iter().map(width_of).collect()
}

/// Room for texts of these widths: what a short one does not need, the longer ones have.
fn share(wanted: &[usize], room: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|&place| wanted[place]);
    let mut given = vec![0; wanted.len()];
    let mut left = room;
    for (number, &place) in order.iter().enumerate() {
        given[place] = wanted[place].min(left / (wanted.len() - number));
        left -= given[place];
    }
    given
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn figure(width: usize, rank: u8) -> Draft {
        Draft { width, typical: width, kind: ColumnKind::Figure, rank, is_paired: false }
    }

    fn name(width: usize) -> Draft {
        Draft { width, typical: width, kind: ColumnKind::Name, rank: 0, is_paired: false }
    }

    #[test]
    fn columns_go_by_rank_and_the_name_has_the_rest() {
        let columns = [figure(8, 0), figure(10, 1), figure(10, 2), figure(10, 2), name(90)];
        assert_eq!(fit(&columns, 200).last(), Some(&(4, 90)));
        assert_eq!(fit(&columns, 80), [(0, 8), (1, 10), (2, 10), (3, 10), (4, 34)]);
        assert_eq!(fit(&columns, 60), [(0, 8), (1, 10), (2, 10), (4, 26)]);
        assert_eq!(fit(&columns, 40), [(0, 8), (4, 30)]);
        assert_eq!(fit(&columns, 20), [(4, 20)]);
    }

    #[test]
    fn a_pair_goes_together() {
        let paired = Draft { is_paired: true, ..figure(10, 2) };
        assert_eq!(fit(&[figure(8, 0), paired, paired, figure(9, 1), name(30)], 60), [(0, 8), (3, 9), (4, 30)]);
    }

    #[test]
    fn short_names_leave_room_for_figures() {
        let columns = [figure(30, 0), figure(30, 1), name(10)];
        assert_eq!(fit(&columns, 74), [(0, 30), (1, 30), (2, 10)]);
        assert_eq!(fit(&columns, 73), [(0, 30), (2, 10)]);
    }

    #[test]
    fn two_names_share_their_room() {
        assert_eq!(share(&[10, 100, 100], 90), [10, 40, 40]);
        assert_eq!(fit(&[figure(8, 0), name(12), name(300)], 100), [(0, 8), (1, 12), (2, 76)]);
        assert!(share(&[], 7).is_empty());
    }

    proptest! {
        #[test]
        fn what_may_go_makes_room(
            figures in prop::collection::vec((1..20_usize, 1..5_u8), 0..20),
            name_width in 1..200_usize,
            width in 30..250_usize,
        ) {
            let mut columns: Vec<Draft> = figures.into_iter().map(|(width, rank)| figure(width, rank)).collect();
            columns.push(name(name_width));
            let kept = fit(&columns, width);
            let total: usize = kept.iter().map(|(_, width)| width + GAP).sum::<usize>() - GAP;
            prop_assert!(total <= width);
            let &(place, given) = kept.last().expect("the name is there");
            prop_assert!(place == columns.len() - 1 && given >= name_width.min(LEAST_NAMES));
        }
    }
}
