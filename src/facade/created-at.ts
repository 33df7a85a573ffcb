export { CreationTimes, creationKey, newestFirst } from "../apis/creation-times.ts"
