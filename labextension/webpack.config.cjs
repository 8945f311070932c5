// Numbers of modules in the order of their use. By default they are hashes of paths, which differ in each folder, and so
// would the packages that are built there.
module.exports = { optimization: { moduleIds: "natural" } };
