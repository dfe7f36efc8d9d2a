//! What the queries of an app share: its tables and named windows.

use crate::column::Column;
use crate::expr::{Expr, Failure, Frame, Host, Place};
use crate::named_window::NamedWindow;
use crate::table::{Search, Table};

/// The tables and named windows of an app, each by its number.
#[derive(Default)]
pub struct Shared {
    /// The tables.
    pub tables: Vec<Table>,
    /// The named windows.
    pub windows: Vec<NamedWindow>,
}

impl Host for Shared {
    fn any_row(
        &self,
        table: usize,
        slot: usize,
        condition: &Expr,
        frame: &Frame<'_>,
    ) -> Result<bool, Failure> {
        let mut any = false;
        if let Some(table) = self.tables.get(table) {
            let search = Search::new(Some(condition.clone()), slot, table.plan());
            table.find(&search, frame, &mut |_, _, _| {
                any = true;
                false
            })?;
        }
        Ok(any)
    }

    fn search(
        &self,
        place: Place,
        slot: usize,
        condition: Option<&Expr>,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(&[Column], usize),
    ) -> Result<(), Failure> {
        match place {
            Place::Table(table) => match self.tables.get(table) {
                Some(table) => {
                    let search = Search::new(condition.cloned(), slot, table.plan());
                    table.find(&search, frame, &mut |_, columns, row| {
                        visit(columns, row);
                        true
                    })
                }
                None => Ok(()),
            },
            Place::Window(window) => match self.windows.get(window) {
                Some(window) => {
                    window.held.find(condition, slot, frame, &mut |columns, row, _| visit(columns, row))
                }
                None => Ok(()),
            },
        }
    }
}
