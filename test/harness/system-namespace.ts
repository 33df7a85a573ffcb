/** Namespace of Berth's own objects in manifests/base. */
export const SYSTEM_NAMESPACE = "berth-system"
