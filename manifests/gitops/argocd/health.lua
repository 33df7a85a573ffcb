-- The health of Berth's kinds for Argo CD, which does not read kstatus. Beyond what kstatus can say: what somebody has paused
-- or cancelled is Suspended, neither healthy nor an error.

local status = obj.status or {}

local function condition(type)
  for _, each in ipairs(status.conditions or {}) do
    if each.type == type then return each end
  end
  return { status = "Unknown" }
end

local deleted = obj.metadata.deletionTimestamp ~= nil
if status.observedGeneration == nil or status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = deleted and "is being deleted" or "not seen by the operator yet" }
end

local stalled = condition("Stalled")
if stalled.status == "True" then
  return { status = stalled.reason == "Cancelled" and "Suspended" or "Degraded", message = stalled.message }
end
if deleted then return { status = "Progressing", message = "is being deleted" } end
if obj.kind == "CronJob" and obj.spec.active == false then return { status = "Suspended", message = "is paused" } end

local ready = condition("Ready")
return { status = ready.status == "True" and "Healthy" or "Progressing", message = ready.message }
