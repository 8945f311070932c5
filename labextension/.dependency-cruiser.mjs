/**
 * Rules for imports between the features of the panel; imports of types count.
 *
 * A feature imports only features of the groups below its own.
 */
const FEATURE_GROUPS = [
  ["index"],
  ["plugins"],
  ["agent_api"],
  ["job_page", "notices"],
  ["files", "jobs", "kernels"],
  ["sessions"],
  ["logins", "resources", "terminals"],
  ["common"],
];

const pathOf = (features) => `^src/(${features.join("|")})(/|\\.tsx?$)`;

const order = FEATURE_GROUPS.slice(1).map((group, index) => ({
  name: `feature-order-${group.join("-")}`,
  severity: "error",
  comment: `${group.join(" and ")} must not import from a group above`,
  from: { path: pathOf(group) },
  to: { path: pathOf(FEATURE_GROUPS.slice(0, index + 1).flat()) },
}));

const siblings = FEATURE_GROUPS.filter((group) => group.length > 1).flatMap((group) =>
  group.map((feature) => ({
    name: `feature-siblings-${feature}`,
    severity: "error",
    comment: "features of one group must not import from each other",
    from: { path: pathOf([feature]) },
    to: { path: pathOf(group.filter((each) => each !== feature)) },
  })),
);

/** @type {import("dependency-cruiser").IConfiguration} */
export default {
  forbidden: [
    { name: "no-cycle", severity: "error", from: {}, to: { circular: true } },
    {
      name: "feature-without-group",
      severity: "error",
      comment: "every file of src belongs to a feature of FEATURE_GROUPS",
      from: {},
      to: { path: "^src/", pathNot: pathOf(FEATURE_GROUPS.flat()) },
    },
    ...order,
    ...siblings,
  ],
  options: {
    tsPreCompilationDeps: true,
    tsConfig: { fileName: "tsconfig.json" },
    doNotFollow: { path: "node_modules" },
  },
};
