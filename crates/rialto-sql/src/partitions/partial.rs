//! [`Partials`]: plans for a part of a statement, made from the plan for all of it.

use std::sync::Arc;

use rialto::row::Value;

use super::message::Part;
use crate::bind::{BoundSelect, OutputColumn};
use crate::error::{Result, SqlError, SqlState};
use crate::expr::Expr;
use crate::prepared::{Kind, Prepared, select_plan};
use crate::values::SqlType;

/// Plans that are kept. When there are more, all are forgotten.
const KEPT_MAX: usize = 64;

/// A plan for all of a statement, a part of it, and the plan for that.
type Partial = (Arc<Prepared>, Part, Arc<Prepared>);

/// Plans for parts of statements, and the plans that they were made from.
#[derive(Default)]
pub(crate) struct Partials {
    plans: Vec<Partial>,
}

impl Partials {
    /// The plan for a part of the statement of this plan. If the part has a number of rows to take, that is the plan's
    /// last parameter.
    pub(crate) fn of(&mut self, whole: &Arc<Prepared>, part: Part) -> Result<Arc<Prepared>> {
        // One plan serves for all numbers of rows.
        let kind = match part {
            Part::Rows { take, keys } => Part::Rows { take: take.map(|_| 0), keys },
            part => part,
        };
        let found = self.plans.iter().find(|(of, known, _)| Arc::ptr_eq(of, whole) && *known == kind);
        if let Some((_, _, plan)) = found {
            return Ok(plan.clone());
        }
        let plan = Arc::new(partial(whole, kind)?);
        if self.plans.len() >= KEPT_MAX {
            self.plans.clear();
        }
        self.plans.push((whole.clone(), kind, plan.clone()));
        Ok(plan)
    }
}

fn partial(whole: &Prepared, part: Part) -> Result<Prepared> {
    let Kind::Select(plan) = &whole.kind else {
        return Err(SqlError::new(SqlState::Internal, "only a SELECT has parts"));
    };
    let BoundSelect { source, filter, items, order, for_update, .. } = &plan.bound;
    let column = |sql_type| OutputColumn { name: String::new(), sql_type };
    let (mut items, mut columns) = (items.clone(), whole.columns.clone());
    let (mut order, mut params, mut limit, mut counts) = (order.clone(), whole.params.clone(), None, false);
    match part {
        Part::Whole => {}
        Part::Count => {
            (items, columns, order, counts) =
                (vec![Expr::Count], vec![column(SqlType::Int8)], Vec::new(), true);
        }
        Part::Rows { take, keys } => {
            if keys {
                items.extend(order.iter().map(|key| key.expr.clone()));
                columns.extend(order.iter().map(|_| column(SqlType::Unknown)));
            }
            if take.is_some() {
                limit = Some(Expr::Param(params.len()));
                params.push(SqlType::Int8);
            }
        }
    }
    let (source, filter, for_update) = (source.clone(), filter.clone(), *for_update);
    let bound = BoundSelect { source, filter, items, order, limit, offset: None, counts, for_update };
    Ok(Prepared {
        text: whole.text.clone(),
        declared: whole.declared.clone(),
        params,
        columns,
        kind: Kind::Select(select_plan(bound)),
        catalog: whole.catalog,
        procedure: whole.procedure,
        bytes: whole.bytes,
    })
}

/// The arguments of the plan for a part.
pub(crate) fn arguments(mut arguments: Vec<Value>, part: Part) -> Vec<Value> {
    if let Part::Rows { take: Some(take), .. } = part {
        arguments.push(Value::Int8(i64::try_from(take).unwrap_or(i64::MAX)));
    }
    arguments
}
