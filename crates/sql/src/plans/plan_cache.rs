//! Plans that are kept for repeated queries.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::MissingFields;

/// Length of a query up to which its plan is kept.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// Plans of kind `P` of repeated queries, by their text. Those that were used least recently are dropped beyond a number of plans.
#[derive(Debug)]
pub(crate) struct PlanCache<P> {
    plans_max: usize,
    state: Mutex<CachedPlans<P>>,
}

#[derive(Debug)]
struct CachedPlans<P> {
    plans: HashMap<MissingFields, HashMap<Arc<str>, CachedPlan<P>>>,
    uses: u64,
}

#[derive(Debug)]
struct CachedPlan<P> {
    plan: Arc<P>,
    used: u64,
}

impl<P> PlanCache<P> {
    pub fn new(plans_max: usize) -> Self {
        Self { plans_max, state: Mutex::new(CachedPlans { plans: HashMap::new(), uses: 0 }) }
    }

    /// Returns the plan of a query.
    pub fn get(&self, text: &str, missing: MissingFields) -> Option<Arc<P>> {
        let mut state = self.state.lock();
        state.uses += 1;
        let used = state.uses;
        let cached = state.plans.get_mut(&missing)?.get_mut(text)?;
        cached.used = used;
        Some(cached.plan.clone())
    }

    /// Returns whether plans of a query are kept.
    pub fn keeps(&self, text: &str) -> bool {
        self.plans_max > 0 && text.len() <= TEXT_BYTES_MAX
    }

    /// Keeps the plan of a query.
    pub fn put(&self, text: &str, missing: MissingFields, plan: Arc<P>) {
        if !self.keeps(text) {
            return;
        }
        let mut state = self.state.lock();
        let count: usize = state.plans.values().map(HashMap::len).sum();
        if count >= self.plans_max {
            state.drop_oldest();
        }
        let used = state.uses;
        state.plans.entry(missing).or_default().insert(text.into(), CachedPlan { plan, used });
    }

    /// Drops the plan of a query if it still is `plan`.
    pub fn remove(&self, text: &str, missing: MissingFields, plan: &Arc<P>) {
        if let Some(plans) = self.state.lock().plans.get_mut(&missing)
            && plans.get(text).is_some_and(|cached| Arc::ptr_eq(&cached.plan, plan))
        {
            plans.remove(text);
        }
    }
}

impl<P> CachedPlans<P> {
    fn drop_oldest(&mut self) {
        let all =
            self.plans.iter().flat_map(|(missing, plans)| plans.iter().map(|(text, p)| (*missing, text, p)));
        let oldest = all.min_by_key(|(.., plan)| plan.used).map(|(missing, text, _)| (missing, text.clone()));
        if let Some((missing, text)) = oldest
            && let Some(plans) = self.plans.get_mut(&missing)
        {
            plans.remove(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Arc<()> {
        Arc::new(())
    }

    #[test]
    fn the_plan_used_least_recently_goes_first() {
        let cache = PlanCache::new(2);
        cache.put("a", MissingFields::Refused, plan());
        cache.put("b", MissingFields::Null, plan());
        assert!(cache.get("a", MissingFields::Refused).is_some());
        assert!(cache.get("a", MissingFields::Null).is_none(), "another treatment of missing fields");
        cache.put("c", MissingFields::Refused, plan());
        assert!(cache.get("b", MissingFields::Null).is_none());
        let kept = cache.get("a", MissingFields::Refused).unwrap();
        cache.remove("a", MissingFields::Refused, &plan());
        assert!(cache.get("a", MissingFields::Refused).is_some(), "another plan was removed");
        cache.remove("a", MissingFields::Refused, &kept);
        assert!(cache.get("a", MissingFields::Refused).is_none());
        let long = "a".repeat(TEXT_BYTES_MAX + 1);
        assert!(cache.keeps(&long[1..]) && !cache.keeps(&long));
        cache.put(&long, MissingFields::Refused, plan());
        assert!(cache.get(&long, MissingFields::Refused).is_none());
        let none = PlanCache::new(0);
        assert!(!none.keeps("a"));
        none.put("a", MissingFields::Refused, plan());
        assert!(none.get("a", MissingFields::Refused).is_none());
    }
}
