-- plan_anew: takes plan_once back, for lists: their filters decide which index serves.
SET plan_cache_mode = force_custom_plan
