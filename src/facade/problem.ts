export * from "../http/problem.ts"
