//! Cuts the rows of a key into parts of one time bin each: whole cells, and rows at the edges.

use std::ops::Range;

use super::aggregate::Bin;
use super::layout::Layout;
use super::scan::TimeRange;

/// Rows of a block.
pub(super) enum PartRows {
    Cells(Range<usize>),
    Rows(Range<usize>),
}

/// Cuts the rows of `key` within `times` into parts of one bin each, in the order of time.
pub(super) fn cut(
    layout: &Layout,
    key: usize,
    bin: Option<Bin>,
    times: TimeRange,
    mut emit: impl FnMut(i64, PartRows),
) {
    let mut rows = layout.rows_of(key);
    let of_key = &layout.times[rows.clone()];
    if times != TimeRange::ALL {
        let from = rows.start + of_key.partition_point(|t| *t < times.from);
        let to = rows.start + of_key.partition_point(|t| *t <= times.last);
        rows = from..to.max(from);
    }
    let aligned = |width: i64| bin.is_none_or(|b| b.consists_of(Bin { width, origin: 0 }));
    let cells = layout.cells.as_ref().filter(|cells| aligned(cells.width));
    let Some((cells, inside)) = cells.map(|c| (c, c.inside(key, &rows))).filter(|(_, i)| !i.is_empty())
    else {
        return cut_rows(layout, rows, bin, &mut emit);
    };
    cut_rows(layout, rows.start..cells.start(inside.start), bin, &mut emit);
    match bin {
        None => emit(0, PartRows::Cells(inside.clone())),
        Some(bin) => {
            let start = |cell: usize| bin.start(layout.times[cells.start(cell)]);
            let mut from = inside.start;
            while from < inside.end {
                let this = start(from);
                let mut to = from + 1;
                while to < inside.end && start(to) == this {
                    to += 1;
                }
                emit(this, PartRows::Cells(from..to));
                from = to;
            }
        }
    }
    cut_rows(layout, cells.start(inside.end)..rows.end, bin, &mut emit);
}

fn cut_rows(layout: &Layout, rows: Range<usize>, bin: Option<Bin>, emit: &mut impl FnMut(i64, PartRows)) {
    let Some(bin) = bin else {
        if !rows.is_empty() {
            emit(0, PartRows::Rows(rows));
        }
        return;
    };
    let mut from = rows.start;
    while from < rows.end {
        let start = bin.start(layout.times[from]);
        let rest = &layout.times[from..rows.end];
        let to = from + rest.partition_point(|t| *t - start < bin.width);
        emit(start, PartRows::Rows(from..to));
        from = to;
    }
}
