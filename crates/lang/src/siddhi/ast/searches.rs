//! Tables that an on-demand query searches by conditions with `in`.

use std::collections::BTreeSet;

use super::{
    Args, Expr, ExprKind, NullOperand, OnDemandQuery, Output, OutputAction, SelectItems, Selection, Within,
};

impl OnDemandQuery {
    /// Returns the names of the tables that its conditions search, as `Others` in `symbol == Others.symbol in Others`. The table that it
    /// reads or changes is not among them, unless it is searched as well.
    pub fn searched_tables(&self) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        match self {
            Self::Find(find) => {
                find.on.iter().for_each(|on| search(on, &mut found));
                find.within.iter().for_each(|within| search_within(within, &mut found));
                find.select.iter().for_each(|select| search_selection(select, &mut found));
            }
            Self::Change(change) => {
                change.select.iter().for_each(|select| search_selection(select, &mut found));
                search_output(&change.output, &mut found);
            }
        }
        found
    }
}

fn search<'e>(expr: &'e Expr, found: &mut BTreeSet<&'e str>) {
    match &expr.kind {
        ExprKind::Literal(_) | ExprKind::Time(_) | ExprKind::Attribute(_) => {}
        ExprKind::IsNull(NullOperand::Step(_)) => {}
        ExprKind::IsNull(NullOperand::Value(operand)) | ExprKind::Not(operand) => search(operand, found),
        ExprKind::Call(call) => match &call.args {
            Args::List(args) => args.iter().for_each(|arg| search(arg, found)),
            Args::All(_) => {}
        },
        ExprKind::Binary { left, right, .. } => {
            search(left, found);
            search(right, found);
        }
        ExprKind::In { condition, table } => {
            found.insert(&table.name);
            search(condition, found);
        }
    }
}

fn search_within<'e>(within: &'e Within, found: &mut BTreeSet<&'e str>) {
    let Within { from, to, per, span: _ } = within;
    [Some(from), to.as_ref(), Some(per)].into_iter().flatten().for_each(|expr| search(expr, found));
}

fn search_selection<'e>(selection: &'e Selection, found: &mut BTreeSet<&'e str>) {
    // group by and order by name attributes
    let Selection { items, group_by: _, having, order_by: _, limit, offset, span: _ } = selection;
    if let SelectItems::List(items) = items {
        items.iter().for_each(|item| search(&item.expr, found));
    }
    [having, limit, offset].into_iter().flatten().for_each(|expr| search(expr, found));
}

fn search_output<'e>(output: &'e Output, found: &mut BTreeSet<&'e str>) {
    match &output.action {
        OutputAction::Insert { .. } | OutputAction::Return => {}
        OutputAction::Delete { on, .. } => on.iter().for_each(|on| search(on, found)),
        OutputAction::Update { set, on, .. } | OutputAction::UpdateOrInsert { set, on, .. } => {
            set.iter().for_each(|assignment| search(&assignment.value, found));
            search(on, found);
        }
    }
}
