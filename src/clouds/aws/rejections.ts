import type { KnownRejection } from "../rejection.ts"

/**
 * Instance types that an account on AWS' Free plan may launch
 * (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-free-tier-usage.html). AWS rejects all others with
 * InvalidParameterCombination, and a dry run does not. Older accounts have fewer of these types.
 */
const FREE_PLAN_TYPES = ["t3.micro", "t3.small", "t4g.micro", "t4g.small", "c7i-flex.large", "m7i-flex.large"]

/** Rejections of AWS (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html). */
export const AWS_REJECTIONS: readonly KnownRejection[] = [
  {
    says: /DefaultVpcDoesNotExist|no default VPC/i,
    scope: ["region"],
    remedy:
      "create a default VPC in a region (aws ec2 create-default-vpc), name `subnets` in the connection, or set `region` of the " +
      "job to one that has it",
  },
  {
    // AWS needs a role in the account for spot VMs, and the policy does not let it create the role.
    says: /ServiceLinkedRoleCreationNotPermitted/,
    scope: ["provisioning"],
    remedy:
      "create the role (aws iam create-service-linked-role --aws-service-name spot.amazonaws.com), or add " +
      "iam:CreateServiceLinkedRole to the connection's IAM policy: docs/aws.md has it",
  },
  {
    says: /PendingVerification/,
    remedy:
      "wait: AWS validates new accounts, mostly within minutes and at most 4 hours; after that write to aws-verification@amazon.com",
  },
  { says: /\bBlocked\b|AccountDisabled/, remedy: "ask AWS to unblock the account: aws-verification@amazon.com" },
  {
    says: /not eligible for Free Tier/i,
    scope: [],
    except: FREE_PLAN_TYPES,
    remedy: "upgrade the account to AWS' paid plan, or request at most 2 vCPU and 7.5Gi (m7i-flex.large)",
  },
  {
    says: /UnauthorizedOperation|AccessDenied|not authorized to perform/i,
    remedy:
      "add the action to the connection's IAM policy (docs/aws.md has all), or set `region` of the job to an allowed one",
  },
  { says: /OptInRequired/, remedy: "enable the region in the account, or set `region` of the job to an enabled one" },
  // Other quotas count vCPUs, by region and apart for spot:
  // https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
  {
    class: "Quota",
    says: /^(Volume|MaxIOPS|NetworkInterface|PrivateIpAddress|SecurityGroup|Address)/,
    scope: ["region"],
  },
]
